"""What a person or a program sees: tables, colours only on a terminal, progress on stderr only there, JSON, notes."""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any, Final, TextIO

__all__ = ["Terminal", "as_json_value", "plain", "shown_size", "shown_time"]

_COLOURS: Final = {"red": "31", "yellow": "33", "green": "32", "bold": "1", "dim": "2"}
_BAR: Final = 30


class Terminal:
    """stdout for results, stderr for the rest. `as_json`: results are for programs."""

    def __init__(self, *, as_json: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.as_json = as_json
        self._out = sys.stdout if out is None else out
        self._err = sys.stderr if err is None else err
        if hasattr(self._out, "reconfigure"):  # a body may hold what the terminal's encoding has not
            self._out.reconfigure(errors="backslashreplace")
        self.coloured = self._out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._progress = self._err.isatty()

    # --- results

    def line(self, text: str = "") -> None:
        """One line of text."""
        self._out.write(text + "\n")

    def json(self, value: Any) -> None:
        """One JSON value on one line; times as ISO-8601, bytes as base64."""
        self._out.write(json.dumps(value, ensure_ascii=False, default=as_json_value) + "\n")

    def flush(self) -> None:
        """For output that comes as things happen."""
        self._out.flush()

    def paint(self, text: str, *colours: str) -> str:
        """`text` in these colours, on a terminal that has them."""
        if not self.coloured:
            return text
        return f"\033[{';'.join(_COLOURS[c] for c in colours)}m{text}\033[0m"

    def table(
        self, names: Sequence[str], rows: Iterable[Sequence[Any]], *, colours: dict[str, tuple[str, ...]] | None = None
    ) -> None:
        """Columns side by side, numbers to the right; on a terminal the last column is cut to its width.

        colours: of cells that hold just this text.
        """
        lines = [[_cell(value) for value in row] for row in rows]
        numeric = [all(_is_number(line[i]) for line in lines) and bool(lines) for i in range(len(names))]
        widths = [max(_width(cell) for cell in column) for column in zip(names, *lines, strict=True)]
        room = shutil.get_terminal_size().columns if self._out.isatty() else None
        for n, line in enumerate([list(names), *lines]):
            cells = []
            for i, cell in enumerate(line):
                if i == len(line) - 1 and not numeric[i]:
                    padded = cell if room is None else _cut(cell, room - sum(widths[:-1]) - 2 * (len(widths) - 1))
                else:
                    space = " " * (widths[i] - _width(cell))
                    padded = space + cell if numeric[i] else cell + space
                painted = ("bold",) if n == 0 else (colours or {}).get(cell, ())
                cells.append(self.paint(padded, *painted) if painted else padded)
            self.line("  ".join(cells).rstrip())

    # --- beside them

    def note(self, text: str) -> None:
        """A line on stderr that is no result."""
        self._clear()
        self._err.write(f"note: {plain(text)}\n")

    def complain(self, text: str) -> None:
        """What went wrong, on stderr."""
        self._clear()
        self._err.write(f"rmq-store: {plain(text)}\n")

    @contextmanager
    def warnings_as_notes(self) -> Iterator[None]:
        """`StoreWarning`s become notes, each once."""
        said: set[str] = set()

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            if str(message) not in said:
                said.add(str(message))
                self.note(str(message))

        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            yield

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Any]:
        """Gives a function to be told how much has been done; draws a bar where stderr is a terminal."""
        done = 0
        drawn = -1

        def advance(amount: int) -> None:
            nonlocal done, drawn
            done += amount
            share = min(done / total, 1.0) if total else 1.0
            if self._progress and int(share * 200) != drawn:
                drawn = int(share * 200)
                bar = ("█" * int(share * _BAR)).ljust(_BAR, "░")
                self._err.write(f"\r{what} {bar} {share:4.0%}")
                self._err.flush()

        try:
            advance(0)
            yield advance
        finally:
            self._clear()

    def _clear(self) -> None:
        if self._progress:
            self._err.write("\r\033[K")


def plain(text: str) -> str:
    """`text` without what would move the cursor or colour the screen: control characters are written out."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def shown_time(value: datetime | None) -> str:
    """`2026-11-21 08:43:18.123`, in UTC."""
    if value is None:
        return "-"
    return value.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"


def shown_size(count: int) -> str:
    """`12.3 MiB`."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def as_json_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, bytes):
        from base64 import b64encode

        return b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no JSON")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return shown_time(value)
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else plain(str(value)).replace("\n", "\\n")


def _is_number(text: str) -> bool:
    return text.replace(",", "").lstrip("-").isdigit() or text == "-"


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, room: int) -> str:
    if _width(text) <= room or room < 2:
        return text
    kept = ""
    for c in text:
        if _width(kept + c) >= room:
            break
        kept += c
    return kept + "…"
