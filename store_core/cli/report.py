"""A report on a store: one HTML page with its pictures in it, that loads nothing from anywhere.

All numbers on the page are those of `figures`, which stand in it once more as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from html import escape
from typing import Any, Final

import pyarrow as pa

from store_core.cli.figures import Figures, LogFile, QueueFigure, figures
from store_core.cli.terminal import plain, shown_size
from store_core.findings import ERROR, KINDS, WARNING
from store_core.store import Store

__all__ = ["page", "report"]

_WIDTH: Final = 960
_TOPICS: Final = 15
_QUEUES: Final = 40
_FILES: Final = 40
_ROWS: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b2430; --soft: #5d6b7c; --line: #d9dfe7; --paper: #ffffff; --card: #f5f7fa;
  --bar: #3b76c4; --bar2: #a9c4e8; --error: #c62f2f; --warning: #b97a00; --good: #1f8a4c; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6ebf2; --soft: #9aa8b8; --line: #344152; --paper: #131a23;
  --card: #1c2531; --bar: #5b96e3; --bar2: #2f4a6d; --error: #ff6b63; --warning: #f0b437; --good: #4cc27f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1040px; padding: 28px 40px 60px; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 25px; margin: 0 0 2px; } h2 { font-size: 18px; margin: 36px 0 4px; } h3 { font-size: 15px; margin: 0; }
p { margin: 4px 0 12px; } .soft, figcaption { color: var(--soft); } .path {
  font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 20px 0; }
.tile { background: var(--card); border-radius: 8px; padding: 12px 16px; }
.tile b { display: block; font-size: 22px; line-height: 1.25; white-space: nowrap; }
.tile.error b, .error > .name { color: var(--error); } .tile.warning b, .warning > .name { color: var(--warning); }
.tile.good b { color: var(--good); }
figure { margin: 0; } svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft); font-size: 12px; }
svg .label { fill: var(--ink); } .bar { fill: var(--bar); } .room { fill: var(--bar2); opacity: .45; }
.axis { stroke: var(--line); }
.mark.error { fill: var(--error); } .mark.warning { fill: var(--warning); }
.kind { border: 1px solid var(--line); border-left: 5px solid var(--line); border-radius: 8px;
  padding: 12px 16px; margin: 14px 0; }
.kind.error { border-left-color: var(--error); } .kind.warning { border-left-color: var(--warning); }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th { text-align: left; color: var(--soft); font-weight: 600; }
th, td { border-top: 1px solid var(--line); padding: 5px 10px 5px 0; vertical-align: top; overflow-wrap: anywhere; }
th.n, td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; } footer { margin-top: 40px; }
"""


def report(store: Store, table: pa.Table) -> str:
    """The page about a store, of which `table` is what `verify` gave."""
    return page(figures(store, table))


def page(made: Figures) -> str:
    """The page of these figures."""
    severities = made.severities
    errors, warnings = severities[ERROR], severities[WARNING]
    verdict = "Errors were found" if errors else "Sound, with warnings" if warnings else "Nothing wrong was found"
    tiles: list[tuple[int | str, str, str]] = [
        (errors, "errors", "error" if errors else "good"),
        (warnings, "warnings", "warning" if warnings else "good"),
        (made.messages, "messages", ""),
        (len(made.bytes_of), "topics", ""),
        (len(made.log), "commitlog files", ""),
        (shown_size(sum(made.bytes_of.values())), "of records", ""),
    ]
    body = [
        f"<h1>{verdict}</h1>",
        f'<p class="path">{_text(made.path)}</p>',
        '<div class="tiles">',
        *(f'<div class="tile {kind}"><b>{_number(value)}</b>{name}</div>' for value, name, kind in tiles),
        "</div>",
        "<h2>Messages and damage over time</h2>",
        f'<p class="soft">Messages by the time they were stored, from {_time(made.start)} to {_time(made.end)} UTC; below, '
        "findings in the commitlog at the time of the record before them.</p>"
        if made.counts
        else '<p class="soft">The log holds no messages that can be read.</p>',
        _timeline(made) if made.counts else "",
        "<h2>The commitlog</h2>",
        '<p class="soft">One bar per file: records in it, and where findings are.</p>',
        _log(made),
        "<h2>Queues</h2>",
        _queues(made),
        "<h2>Space by topic</h2>",
        _topics(made),
        "<h2>Findings</h2>",
        *_findings(made),
        '<footer class="soft">Made by <code>rmq-store verify --html</code> from the files alone; a broker was not asked. '
        "Times are UTC.</footer>",
        f'<script type="application/json" id="figures">{_json(made)}</script>',
    ]
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{verdict}: {_text(made.path)}</title><style>{_STYLE}</style></head>"
    )
    return head + "<body>\n" + "\n".join(part for part in body if part) + "\n</body></html>\n"


# --- pictures ------------------------------------------------------------------------------------------------------------


def _svg(height: float, parts: Iterable[str], name: str) -> str:
    inner = "".join(parts)
    label = escape(name, quote=True)
    return f'<figure><svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{label}" id="{label}">{inner}</svg></figure>'


def _timeline(made: Figures) -> str:
    left, top, height = 56, 10, 150
    room = _WIDTH - left - 8
    most = max(made.counts)
    width = room / len(made.counts)
    parts = []
    for share in (0, 0.5, 1):
        y = top + height * (1 - share)
        parts.append(f'<line class="axis" x1="{left}" x2="{_WIDTH - 8}" y1="{y:g}" y2="{y:g}"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:g}" text-anchor="end">{_number(round(most * share))}</text>')
    span = (made.end - made.start) / len(made.counts)
    for i, count in enumerate(made.counts):
        if count:
            tall = max(height * count / most, 1)
            title = f"{_number(count)} messages from {_time(int(made.start + i * span))}"
            parts.append(
                f'<rect class="bar" data-count="{count}" x="{left + i * width:.2f}" y="{top + height - tall:.2f}" '
                f'width="{max(width - 1, 0.5):.2f}" height="{tall:.2f}"><title>{title}</title></rect>'
            )
    y = top + height + 16
    for ms, severity, row in made.damage:
        x = left + room * (ms - made.start) / max(made.end - made.start, 1)
        found = made.findings[row]
        parts.append(
            f'<path class="mark {severity}" data-row="{row}" d="M{x:.2f} {y - 9} l6 11 h-12 z">'
            f"<title>{_text(found['kind'])}: {_text(found['found'])}</title></path>"
        )
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        at = int(made.start + (made.end - made.start) * share)
        parts.append(f'<text x="{left + room * share:.1f}" y="{y + 22}" text-anchor="{anchor}">{_time(at)}</text>')
    return _svg(y + 30, parts, "timeline")


def _log(made: Figures) -> str:
    shown = sorted(made.log, key=lambda f: (not f.marks, f.base_offset))[:_FILES]
    left, row, room = 190, 24, _WIDTH - 190 - 90
    longest = max((f.length for f in made.log), default=1) or 1
    parts = []
    for i, file in enumerate(sorted(shown, key=lambda f: f.base_offset)):
        parts += _log_bar(made, file, i * row, left, room / longest)
    note = _left_out(len(made.log) - len(shown), "files without findings")
    return _svg(len(shown) * row + 4, parts, "commitlog") + note


def _log_bar(made: Figures, file: LogFile, y: int, left: int, scale: float) -> list[str]:
    name = file.path.rpartition("/")[2]
    parts = [
        f'<text class="label" x="{left - 10}" y="{y + 15}" text-anchor="end">{_text(name)}</text>',
        f'<rect class="room" x="{left}" y="{y + 4}" width="{file.length * scale:.2f}" height="14" rx="2"/>',
        f'<rect class="bar" data-bytes="{file.data}" x="{left}" y="{y + 4}" width="{min(file.data, file.length) * scale:.2f}" '
        f'height="14" rx="2"><title>{_number(file.data)} of {_number(file.length)} bytes are records</title></rect>',
        f'<text x="{_WIDTH - 80}" y="{y + 15}">{shown_size(file.data)}</text>',
    ]
    for start, end, severity, row in file.marks:
        found = made.findings[row]
        parts.append(
            f'<rect class="mark {severity}" data-row="{row}" x="{left + min(start, file.length) * scale:.2f}" y="{y + 1}" '
            f'width="{max((min(end, file.length) - start) * scale, 3):.2f}" height="20" rx="1">'
            f"<title>{_text(found['kind'])} at byte {_number(start)}: {_text(found['found'])}</title></rect>"
        )
    return parts


def _queues(made: Figures) -> str:
    if not made.queues:
        return '<p class="soft">There are no queue files.</p>'
    shown = sorted(made.queues, key=lambda q: (not q.marks, q.first - q.stop))[:_QUEUES]
    left, row, room = 300, 22, _WIDTH - 300 - 90
    most = max((max(q.stop, _last_mark(q)) - q.first for q in shown), default=1) or 1
    parts = []
    for i, queue in enumerate(sorted(shown, key=lambda q: (q.topic, q.queue_id))):
        y, scale = i * row, room / most
        count, name = queue.stop - queue.first, f"{queue.topic}/{queue.queue_id}"
        parts += [
            f'<text class="label" x="{left - 10}" y="{y + 14}" text-anchor="end">{_short(name)}</text>',
            f'<rect class="bar" data-messages="{count}" x="{left}" y="{y + 3}" width="{max(count * scale, 1):.2f}" height="13">'
            f"<title>queueOffsets {_number(queue.first)} to {_number(queue.stop)}</title></rect>",
            f'<text x="{_WIDTH - 80}" y="{y + 14}">{_number(count)}</text>',
        ]
        for number, many, severity, at in queue.marks:
            x = left + max(number - queue.first, 0) * scale
            found = made.findings[at]
            parts.append(
                f'<rect class="mark {severity}" data-row="{at}" x="{x:.2f}" y="{y}" width="{max(many * scale, 3):.2f}" '
                f'height="19" rx="1"><title>{_text(found["kind"])} at queueOffset {_number(number)}: {_text(found["found"])}'
                "</title></rect>"
            )
    text = '<p class="soft">One bar per queue: how many messages it holds, and where findings are.</p>'
    return text + _svg(len(shown) * row + 4, parts, "queues") + _left_out(len(made.queues) - len(shown), "smaller queues")


def _last_mark(queue: QueueFigure) -> int:
    return max((number + many for number, many, _, _ in queue.marks), default=queue.stop)


def _topics(made: Figures) -> str:
    shown = list(made.bytes_of.items())[:_TOPICS]
    left, row, room = 300, 24, _WIDTH - 300 - 220
    most = max((size for _, size in shown), default=1) or 1
    parts = []
    for i, (topic, size) in enumerate(shown):
        y, long = i * row, max(room * size / most, 1)
        share = f"{size / max(sum(made.bytes_of.values()), 1):.0%}"
        parts += [
            f'<text class="label" x="{left - 10}" y="{y + 15}" text-anchor="end">{_short(topic)}</text>',
            f'<rect class="bar" data-bytes="{size}" x="{left}" y="{y + 4}" width="{long:.2f}" height="14" rx="2">'
            f"<title>{_number(size)} bytes</title></rect>",
            f'<text x="{left + room + 12}" y="{y + 15}">{shown_size(size)}, {share}, '
            f"{_number(made.messages_of[topic])} messages</text>",
        ]
    return _svg(len(shown) * row + 4, parts, "topics") + _left_out(len(made.bytes_of) - len(shown), "smaller topics")


# --- findings ------------------------------------------------------------------------------------------------------------


def _findings(made: Figures) -> Iterable[str]:
    if not made.findings:
        yield '<p class="soft">None: log, queues, index, checkpoint and config agree.</p>'
    order = sorted(made.kinds, key=lambda kind: (all(r["severity"] != ERROR for r in made.findings if r["kind"] == kind), kind))
    for kind in order:
        rows = [row for row in made.findings if row["kind"] == kind]
        severity = ERROR if any(row["severity"] == ERROR for row in rows) else WARNING
        meaning = KINDS[kind].meaning
        yield f'<section class="kind {severity}" data-kind="{kind}" data-count="{len(rows)}">'
        title = f"{meaning[0].upper()}{_text(meaning[1:])}"
        yield f'<h3 class="name">{title} <span class="soft">({kind}, {_number(len(rows))})</span></h3>'
        for consequence in dict.fromkeys(row["consequence"] for row in rows):
            yield f"<p>{_text(consequence)}</p>"
        yield '<table><tr><th>file</th><th class="n">bytes</th><th>found</th><th>expected</th></tr>'
        for row in rows[:_ROWS]:
            place = row["file"].removeprefix(made.path).lstrip("/") or row["file"]
            where = "" if row["start"] is None else _number(row["start"])
            where += "" if row["end"] is None else f"–{_number(row['end'])}"
            yield (
                f'<tr><td class="path">{_text(place)}</td><td class="n">{where}</td><td>{_text(row["found"])}</td>'
                f"<td>{_text(row['expected'])}</td></tr>"
            )
        yield "</table>" + _left_out(len(rows) - _ROWS, "findings of this kind; verify --json gives all")
        yield "</section>"


def _left_out(count: int, what: str) -> str:
    return f'<p class="soft">and {_number(count)} more {what}</p>' if count > 0 else ""


def _short(text: str) -> str:
    return _text(text if len(text) <= 40 else f"{text[:26]}…{text[-13:]}")


def _text(text: str) -> str:
    return escape(plain(text), quote=True)


def _number(value: int | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"


def _time(ms: int) -> str:
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:
        return str(ms)


def _json(made: Figures) -> str:
    values: dict[str, Any] = {
        "severities": dict(made.severities),
        "kinds": dict(made.kinds),
        "messages": made.messages,
        "bytes": made.bytes_of,
        "messagesOfTopics": made.messages_of,
        "counts": made.counts,
        "start": made.start,
        "end": made.end,
        "queues": [[q.topic, q.queue_id, q.first, q.stop] for q in made.queues],
        "findings": made.findings,
    }
    return json.dumps(values, ensure_ascii=True).replace("<", "\\u003c")
