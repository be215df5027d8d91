"""The moments of a commit at which a crash leaves something else behind. Tests stop the process at each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["STEPS", "hook", "reached"]

STEPS: Final = (
    "staged",
    "surveyed",
    "journal written",
    "lock emptied",
    "abort made",
    "batch written",
    "log written",
    "queues written",
    "index written",
    "config written",
    "synced",
    "published",
    "moved",
    "abort removed",
    "lock restored",
    "journal removed",
    "staging removed",
    "swap noted",
    "old moved away",
    "new moved in",
    "old removed",
    "swap forgotten",
    "undoing",
)

hook: list[Callable[[str], None]] = []
"""What is called at each step, with its name."""


def reached(step: str) -> None:
    """Says that a commit has come so far."""
    assert step in STEPS
    for call in hook:
        call(step)
