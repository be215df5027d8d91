"""Bodies as a log stores them, and the sysFlag bits that say so.

`MessageSysFlag`, `DefaultMQProducerImpl#tryToCompressMessage`.

A row whose sysFlag says compressed may have its body as stored (read with bodyFormat=raw) or decompressed. Its bodyCRC tells:
it is that of the stored body. Where there is none, a body that is no whole stream was decompressed. One that is could be
either, and is refused: the option bodyFormat says which. No record is made whose flag lies.
"""

from __future__ import annotations

import zlib
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from store_core.codecs import compress, compression_name
from store_core.layout import COMPRESSED_FLAG, COMPRESSION_MASK, COMPRESSION_SHIFT, CRC_MASK
from store_core.ragged import offsets_of
from store_core.refusal import Rows
from store_core.writeoptions import WriteOptions

__all__ = ["body_crcs", "compression_bits", "is_compressed", "stored_bodies"]

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

_COPIED: Final = 512
"""Shorter bodies are checked faster as objects of their own, longer ones where they lie."""
_STEP: Final = 1 << 18
_MAGICS: Final = {
    "zlib": (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"),
    "lz4": (b"\x04\x22\x4d\x18",),
    "zstd": (b"\x28\xb5\x2f\xfd",),
}
_KINDS: Final = {"zlib": 3, "lz4": 1, "zstd": 2}


def compression_bits(name: str, typed: bool = True) -> int:
    """The sysFlag bits of a body that is compressed so; `typed`: brokers before 4.9.4 knew zlib alone, and no bits for it."""
    return COMPRESSED_FLAG | (_KINDS[name] << COMPRESSION_SHIFT if typed else 0)


def body_crcs(bodies: pa.BinaryArray) -> I64:
    """BODYCRC of each stored body (`UtilAll#crc32`): int64[n]."""
    count = len(bodies)
    crc = zlib.crc32
    ends = offsets_of(bodies)
    if count and (ends[-1] - ends[0]) // count > _COPIED:
        data, at = memoryview(bodies.buffers()[2]), ends.tolist()
        found = [crc(data[start:end]) for start, end in pairwise(at)]
    else:
        found = list(map(crc, bodies.to_numpy(zero_copy_only=False).tolist()))
    return np.array(found, dtype=np.int64) & CRC_MASK


def is_compressed(body: bytes, name: str) -> bool:
    """Whether a body is a whole stream of this compression. Costs a decompression, but no memory."""
    if not body.startswith(_MAGICS[name]):
        return False
    try:
        if name == "zlib":
            inflater = zlib.decompressobj()
            inflater.decompress(body, _STEP)
            while inflater.unconsumed_tail:
                inflater.decompress(inflater.unconsumed_tail, _STEP)
            inflater.flush()
            return inflater.eof
        with pa.CompressedInputStream(pa.BufferReader(body), name) as stream:
            while stream.read(_STEP):
                pass
    except (zlib.error, OSError, pa.ArrowException):
        return False
    return True


def stored_bodies(
    bodies: pa.BinaryArray, sys_flag: I32, given_crc: Any, options: WriteOptions, rows: Rows
) -> tuple[pa.BinaryArray, I32]:
    """(the bodies to store, the sysFlags that go with them). `given_crc`: the column bodyCRC, nulls where it is not known.

    Errors: OptionError for a body of which can't be told what it is.
    """
    length = np.diff(offsets_of(bodies))
    flagged = (sys_flag & COMPRESSED_FLAG != 0) & (length > 0)
    chosen = options.compression
    squeeze = np.zeros(len(bodies), dtype=bool)
    if chosen not in (None, "none"):
        squeeze = ~flagged & (length >= options.compress_msg_body_over_howmuch)
    work = np.flatnonzero(flagged | squeeze)
    if not len(work):
        return bodies, sys_flag
    sys_flag = sys_flag.copy()
    changed: list[int] = []
    made: list[bytes] = []
    for row in work.tolist():
        body = bodies[row].as_py()
        flags = int(sys_flag[row])
        if flagged[row]:
            crc = given_crc[row].as_py()
            if _as_stored(body, flags, crc, options, rows, row):
                continue
        if chosen is not None:
            plain = chosen == "none" or len(body) < options.compress_msg_body_over_howmuch
            flags = flags & ~(COMPRESSED_FLAG | COMPRESSION_MASK)
            flags |= 0 if plain else compression_bits(chosen, options.typed_compression)
        if flags & COMPRESSED_FLAG:
            body = compress(body, compression_name(flags) or "")
        sys_flag[row] = flags
        changed.append(row)
        made.append(body)
    if not changed:
        return bodies, sys_flag
    source = np.arange(len(bodies))
    source[changed] = len(bodies) + np.arange(len(changed))
    return pa.concat_arrays([bodies, pa.array(made, type=pa.binary())]).take(pa.array(source)), sys_flag


def _as_stored(body: bytes, flags: int, crc: int | None, options: WriteOptions, rows: Rows, row: int) -> bool:
    """Whether the body of a row that is flagged as compressed is compressed already."""
    untouched = crc is not None and crc == zlib.crc32(body) & CRC_MASK
    if untouched and options.preserve:
        return True
    name = compression_name(flags)
    if name is None:
        raise rows.refuse(
            row, "sysFlag", flags, "compression type 0 (zlib), 1 (lz4), 2 (zstd) or 3 (zlib)", "Clear the bits 0x701"
        )
    if options.body_format == "decoded":
        return False
    if untouched and body.startswith(_MAGICS[name]):
        return True
    stream = is_compressed(body, name)
    if options.body_format == "raw" and not stream:
        raise rows.refuse(row, "body", body[:40], f"a {name} stream, as sysFlag {flags:#x} says", "bodyFormat is raw")
    if options.body_format is None and stream and not untouched:
        raise rows.refuse(
            row,
            "bodyCRC",
            crc,
            f"the CRC of the body, which is a {name} stream",
            "Set the option bodyFormat: raw if that stream is the body as stored, decoded if it is to be compressed once more",
        )
    return stream
