"""Java's `.properties` text (`java.util.Properties#load`), in which a broker's configuration file is written."""

from __future__ import annotations

import re

from store_core.errors import CorruptStoreError

__all__ = ["parse_properties"]

_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_NAME = re.compile(r"((?:\\.|[^\\=: \t\f])*)(?:[ \t\f]*[=:])?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.?))", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    """Names and values in `data`, ISO-8859-1 with escapes as Java reads it; the last of equal names counts.

    Errors: CorruptStoreError for a `\\u` without four hexadecimal digits, which Java refuses too.
    """
    found = {}
    for number, line in _logical_lines(data.decode("latin-1")):
        head = _NAME.match(line)
        assert head is not None  # each of its parts may be empty
        found[_unescape(head[1], number)] = _unescape(line[head.end() :], number)
    return found


def _logical_lines(data: str) -> list[tuple[int, str]]:
    """(number of its first line, text) of every line that is neither blank nor a comment, continued lines joined."""
    lines: list[tuple[int, str]] = []
    first, text = 0, ""  # of the line that goes on; one that is empty so far is none, as in Java
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", data), start=1):
        line = raw.lstrip(" \t\f")
        if not text:
            if not line or line[0] in "#!":
                continue
            first = number
        goes_on = _CONTINUED.search(line) is not None
        text += line[:-1] if goes_on else line
        if not goes_on:
            lines.append((first, text))
            text = ""
    if text:
        lines.append((first, text))
    return lines


def _unescape(text: str, number: int) -> str:
    def plain(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        if match[2] == "u":
            raise CorruptStoreError(f"line {number}: \\u without four hexadecimal digits")
        return _LETTERS.get(match[2], match[2])

    units = _ESCAPE.sub(plain, text)
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # two \u escapes may be one character
