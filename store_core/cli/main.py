"""The entry point of `rmq-store`: arguments to a command, errors to exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from store_core.cli.parser import COMMANDS, STORE_OPTIONS, make_parser

__all__ = ["main"]

USAGE: Final = 2
UNREADABLE: Final = 3
INTERRUPTED: Final = 130
READER_GONE: Final = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code (see `rmq-store --help`)."""
    try:
        args = make_parser().parse_args(argv)
    except SystemExit as e:  # argparse has said what is wrong, or shown its help
        return e.code if isinstance(e.code, int) else USAGE
    given = {name.removeprefix("option:"): value for name, value in vars(args).items() if name.startswith("option:")}
    args.layout = {name: value for name, value in given.items() if value is not None and name in STORE_OPTIONS}
    args.options = {name: value for name, value in given.items() if value is not None and name not in STORE_OPTIONS}
    try:
        code = _run(args)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # what is still buffered would fail again when Python closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE


def _run(args: object) -> int:
    from store_core.cli.terminal import Terminal
    from store_core.errors import OptionError, StoreError

    terminal = Terminal(as_json=bool(getattr(args, "json", False)))
    command = COMMANDS[getattr(args, "command", "")]
    try:
        with terminal.warnings_as_notes():
            code: int = import_module(f"store_core.cli.{command.module}").run(args, terminal)
        return code
    except OptionError as e:
        terminal.complain(str(e))
        return USAGE
    except (StoreError, PermissionError, IsADirectoryError, FileExistsError) as e:
        terminal.complain(str(e))
        return USAGE if isinstance(e, FileExistsError) else UNREADABLE
