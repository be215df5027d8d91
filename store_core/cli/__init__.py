"""The command line `rmq-store`. Each command's module is imported when it is run, so that help and errors come at once."""

from __future__ import annotations

__all__: list[str] = []
