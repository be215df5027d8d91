"""`python -m store_core`: the command line, as `rmq-store` has it."""

from __future__ import annotations

import sys

from store_core.cli.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
