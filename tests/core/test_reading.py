"""Records of a log that a broker is writing."""

from __future__ import annotations

import pytest

import store_core
from store_core.files import LocalFiles
from store_core.reading import Found, Gap, read_range
from tests.golden_stores import Golden


class HalfWritten(LocalFiles):
    """A file as it was while the record at `place` was written: the first read over it finds its beginning, and zeros."""

    def __init__(self, place: int, written: int) -> None:
        super().__init__()
        self.until: int | None = place + written

    def read_into(self, path: str, position: int, buffer: memoryview) -> int:
        got = super().read_into(path, position, buffer)
        if self.until is not None and position <= self.until < position + got:
            buffer[self.until - position : got] = bytes(got - (self.until - position))
            self.until = None
        return got


@pytest.mark.parametrize("name", ["plain-4.9.7", "dledger-4.9.7"])
@pytest.mark.parametrize("written", [0, 3, 30, 90, 120])
def test_a_record_that_was_being_written(name: str, written: int, golden: Golden) -> None:
    """With records behind it by the time it is looked at again, it is no damage."""
    log = store_core.open_store(golden(name)).log
    segment = log.segments[0]

    def places(files: LocalFiles) -> list[int]:
        found: list[int] = []
        stop = segment.end_offset
        for each in read_range(files, log, segment, segment.base_offset, stop, aligned=True, records_behind=len(log) > 1):
            assert isinstance(each, Found) or (isinstance(each, Gap) and each.is_tail), each
            if isinstance(each, Found):
                found += each.parts.heads["commitLogOffset"].tolist()
        return found

    whole = places(LocalFiles())
    for number in (0, 1, len(whole) // 2, len(whole) - 1):
        assert places(HalfWritten(whole[number] - segment.base_offset, written)) == whole
