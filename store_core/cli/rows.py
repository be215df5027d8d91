"""Messages as lines: JSON objects for programs, one line each for a person."""

from __future__ import annotations

from typing import Any, Final

from store_core.cli.terminal import Terminal, plain, shown_time

__all__ = ["json_row", "print_messages", "readable"]

_PREVIEW: Final = 80


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the messages table for `json`: the body as `body` where it is text, else in `bodyBase64`."""
    made: dict[str, Any] = {}
    for name, value in row.items():
        if name == "body" and value is not None:
            text = _text(value)
            made["body" if text is not None else "bodyBase64"] = value if text is None else text
        elif name == "properties" and value is not None:
            made[name] = dict(value)
        else:
            made[name] = value
    return made


def _text(body: bytes) -> str | None:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def readable(row: dict[str, Any], terminal: Terminal, whole_body: bool) -> str:
    """One message on one line, its body cut short; `whole_body`: on lines of its own, all of it."""
    if row.get("topic") is None and any(isinstance(value, dict) and "reason" in value for value in row.values()):
        corrupt = next(value for value in row.values() if isinstance(value, dict) and "reason" in value)
        where = f"{corrupt['file']} bytes [{corrupt['start']}, {corrupt['end']})"
        return terminal.paint(f"corrupt: {plain(where)}: {plain(corrupt['reason'])}", "red")
    place = f"{row['topic']}/{row['queueId']}@{row['queueOffset']}"
    parts = [terminal.paint(shown_time(row["storeTimestamp"]), "dim"), terminal.paint(plain(place), "bold")]
    parts += [f"{name}={plain(str(row[name]))}" for name in ("tags", "keys", "uniqKey") if row[name]]
    parts += [f"offset={row['commitLogOffset']}", f"id={row['offsetMsgId']}"]
    body = row["body"] or b""
    text = _text(body)
    if whole_body:
        return " ".join(parts) + "\n" + (body.hex() if text is None else plain(text))
    if text is None:
        text = f"({len(body)} bytes) {body[: _PREVIEW // 4].hex()}"
    text = plain(text[: _PREVIEW + 1]).replace("\n", "\\n")
    return " ".join(parts) + "  " + (text if len(text) <= _PREVIEW else text[: _PREVIEW - 1] + "…")


def print_messages(rows: list[dict[str, Any]], terminal: Terminal, whole_body: bool) -> None:
    """All of them, in order."""
    for row in rows:
        if terminal.as_json:
            terminal.json(json_row(row))
        else:
            terminal.line(readable(row, terminal, whole_body))
