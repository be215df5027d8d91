"""The CRCs of whole batches of records: of the body (`UtilAll#crc32`) and of the record (`MessageDecoder#createCrc32`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from store_core import codecs
from store_core.decode import Parts

__all__ = ["CrcFault", "crc_faults"]


@dataclass(frozen=True, slots=True)
class CrcFault:
    """A CRC that a record carries and does not have: `index` in the batch, `name` BODYCRC or __CRC32#, both as text."""

    index: int
    name: str
    found: str
    expected: str

    @property
    def reason(self) -> str:
        """One sentence."""
        if self.name == "BODYCRC":
            return f"BODYCRC is {self.found}, the stored body's is {self.expected}"
        return f"__CRC32# is {self.found}, the record's is {self.expected} (digits reversed)"


def crc_faults(parts: Parts) -> Iterator[CrcFault]:
    """Records whose body or whole does not have the CRC that they carry; of one that fails both, the body's."""
    buffer = memoryview(parts.buffer)
    stored = parts.header("bodyCRC")
    for i, (start, length) in enumerate(zip(parts.body_start.tolist(), parts.body_length.tolist(), strict=True)):
        if length and (crc := codecs.body_crc(buffer[start : start + length])) != stored[i]:
            yield CrcFault(i, "BODYCRC", str(stored[i]), str(crc))
            continue
        record = parts.record(i)
        block = codecs.stored_crc_property(record)
        if block is not None and block != (right := codecs.crc_property(record[: -len(block)])):
            yield CrcFault(i, "__CRC32#", block[9:19].decode("latin-1"), right[9:19].decode())
