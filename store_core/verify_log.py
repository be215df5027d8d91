"""Check: the log itself. Records, their CRCs, what is between them, how files end (`CommitLog#checkMessageAndReturnSize`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from store_core.boundaries import first_in
from store_core.checksums import crc_faults
from store_core.files import Files
from store_core.findings import ERROR, WARNING, Finding
from store_core.layout import BLANK_MAGIC, DLEDGER_BLANK_MAGIC
from store_core.plan import Spec, StoreFacts, VerifyLog
from store_core.reading import Found, Gap, read_range
from store_core.records import Fault, diagnose
from store_core.segments import Framing, Log, Segment
from store_core.verify_keys import KeyCheck
from store_core.verify_units import UnitCheck

__all__ = ["check_log"]

_BLANK_HEAD: Final = 8
_KINDS: Final = {"magic": "magic", "size": "size", "lengths": "lengths", "zeros": "zeros"}


def check_log(spec: Spec, facts: StoreFacts, piece: VerifyLog, files: Files) -> Iterator[Finding]:
    """The findings of one range of the log; its records are read once, whole."""
    segment = piece.segment
    behind = segment.base_offset < spec.records_until
    units, keys = UnitCheck(spec, facts, files), KeyCheck(spec, facts, files, piece.start)
    gaps: list[tuple[int, int]] = []
    start = end = first_in(files, facts.root, segment, segment.base_offset, piece.start, piece.stop)
    for found in read_range(files, Log((segment,)), segment, start, piece.stop, aligned=True, records_behind=behind):
        if isinstance(found, Gap):
            gaps.append((found.start, found.end))
            end = found.end
            yield from _gap(facts, files, found)
            continue
        parts = found.parts
        yield from _crcs(found)
        yield from units.findings(parts)
        end = int(parts.heads["commitLogOffset"][-1]) + int(parts.store_size()[-1])
        yield from keys.findings(segment, parts, min(end, piece.stop), gaps)
        gaps = [gap for gap in gaps if gap[1] > end]
    yield from keys.end(piece.stop, gaps)
    yield from units.rest()
    if piece.stop == segment.end_offset and behind and end < segment.end_offset and segment.length == facts.usual_length:
        yield from _blank(files, segment, end)


def _crcs(found: Found) -> Iterator[Finding]:
    base = found.segment.base_offset
    for fault in crc_faults(found.parts):
        start = int(found.parts.heads["commitLogOffset"][fault.index]) - base
        end = start + int(found.parts.heads["storeSize"][fault.index])
        kind = "body-crc" if fault.name == "BODYCRC" else "properties-crc"
        digits = "" if kind == "body-crc" else " (digits reversed)"
        expected = f"{fault.name} {fault.expected}{digits}, by the bytes"
        yield Finding(kind, found.segment.path, start, end, expected, f"{fault.name} {fault.found}")


def _gap(facts: StoreFacts, files: Files, gap: Gap) -> Iterator[Finding]:
    """A range without records: damage where records stand behind it, else what lies behind the log's end."""
    segment = gap.segment
    if gap.end == segment.end_offset and segment.length < facts.usual_length:
        return  # the file was cut short: `verify_store` says so
    fault = diagnose(files, segment, gap.start)
    start, end = gap.start - segment.base_offset, gap.end - segment.base_offset
    rest = segment.end_offset - gap.start
    if not gap.is_tail and gap.end == segment.end_offset and _was_blank(files, segment, gap.start, fault):
        expected = f"a closing record: size {rest}, magic 0xcbd43194"
        yield Finding("blank", segment.path, start, min(start + _BLANK_HEAD, end), expected, fault.found)
        return
    kind = _kind(fault, gap)
    severity, consequence = ERROR, None
    if gap.is_tail and (kind == "recycled" or facts.abort):
        severity = WARNING
        if kind != "recycled":
            consequence = (
                "The recovery that abort brings about cuts the log here, as after every crash; nothing behind was whole."
            )
    elif gap.is_tail:
        consequence = "A recovery cuts the log here: the message is lost, and queue entries that lead to it are cut off."
    expected = fault.expected or ("free space: zeros" if kind == "recycled" and gap.is_tail else "a whole record of this place")
    yield Finding(kind, segment.path, start, end, expected, fault.found, severity, consequence)


def _kind(fault: Fault, gap: Gap) -> str:
    if fault.what in _KINDS and (fault.was_record or not gap.is_tail):
        return _KINDS[fault.what]
    fills = fault.size == gap.end - gap.start and not gap.is_tail
    if fault.what == "place" and (fault.was_record or fills):
        return "physical-offset"
    return "recycled"


def _was_blank(files: Files, segment: Segment, offset: int, fault: Fault) -> bool:
    """Whether a file's closing record stood here: its size or its magic are still right (but for a bit), or all is zeros."""
    if fault.what == "zeros":
        return True
    head = np.frombuffer(files.read(segment.path, offset - segment.base_offset, _BLANK_HEAD).ljust(_BLANK_HEAD, b"\0"), ">i4")
    ledger = segment.framing is Framing.DLEDGER
    size, magic = (int(head[1]), int(head[0])) if ledger else (int(head[0]), int(head[1]))
    right = DLEDGER_BLANK_MAGIC if ledger else BLANK_MAGIC
    return size == segment.end_offset - offset or ((magic ^ right) & 0xFFFFFFFF).bit_count() <= 1


def _blank(files: Files, segment: Segment, offset: int) -> Iterator[Finding]:
    """The closing record of a file that has a successor: its size is all that is left of the file."""
    position = offset - segment.base_offset
    head = np.frombuffer(files.read(segment.path, position, _BLANK_HEAD).ljust(_BLANK_HEAD, b"\0"), ">i4")
    ledger = segment.framing is Framing.DLEDGER
    size, magic = (int(head[1]), int(head[0])) if ledger else (int(head[0]), int(head[1]))
    right = DLEDGER_BLANK_MAGIC if ledger else BLANK_MAGIC
    rest = segment.length - position
    if magic == right and size != rest and rest >= _BLANK_HEAD:
        expected = f"a closing record of size {rest}, all that is left of the file"
        consequence = "None: a broker reads its magic only, and goes on in the next file."
        yield Finding("blank", segment.path, position, position + _BLANK_HEAD, expected, f"size {size}", WARNING, consequence)
