"""Compression and CRC of bodies, as `MessageDecoder`, `CompressorFactory`, `UtilAll#crc32` and `MessageDecoder#createCrc32` do
them.
"""

from __future__ import annotations

import zlib

import pyarrow as pa

from store_core.errors import CorruptStoreError
from store_core.layout import (
    COMPRESSION_MASK,
    COMPRESSION_NAMES,
    COMPRESSION_SHIFT,
    CRC_MASK,
    CRC_PROPERTY,
    CRC_PROPERTY_SIZE,
    SEPARATOR_NAME,
)

__all__ = ["body_crc", "compress", "compression_name", "crc_property", "decompress", "stored_crc_property"]

_STEP = 1 << 20
_LZ4_BLOCK = 4 << 20
_LZ4_HEAD = bytes.fromhex("04224d18607073")
"""Magic; version 1 with independent blocks and no checksums; blocks of up to 4 MiB; the checksum of these two bytes."""
_LZ4_STORED = 1 << 31


def compression_name(sys_flag: int) -> str | None:
    """`zlib`, `lz4` or `zstd` of a compressed body's sysFlag; None for a type that RocketMQ does not have."""
    return COMPRESSION_NAMES.get((sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT)


def decompress(body: bytes, sys_flag: int, most: int) -> bytes:
    """The body behind a compressed one, at most `most` bytes of it: output is produced step by step, so a bomb costs no memory.

    Errors: CorruptStoreError for a body that is no such stream, is cut short, or is larger than `most`.
    """
    name = compression_name(sys_flag)
    if name is None:
        kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT
        raise CorruptStoreError(
            f"compression type {kind} in sysFlag {sys_flag:#x}; RocketMQ has 0 (zlib), 1 (lz4), 2 (zstd), 3 (zlib)"
        )
    try:
        plain = _inflate(body, most) if name == "zlib" else _stream(body, name, most)
    except (zlib.error, OSError, pa.ArrowException) as e:
        raise CorruptStoreError(f"the body is no {name} stream: {e}", hint="bodyFormat=raw gives it as stored") from e
    if len(plain) > most:
        raise CorruptStoreError(
            f"the {name} body of {len(body)} bytes grows over {most} bytes",
            hint="Raise maxDecompressedSize if that is no attack, or read with bodyFormat=raw",
        )
    return plain


def _inflate(body: bytes, most: int) -> bytes:
    inflater = zlib.decompressobj()
    plain = inflater.decompress(body, most + 1)
    if len(plain) <= most and not inflater.eof:
        raise zlib.error("incomplete stream")
    return plain


def _stream(body: bytes, name: str, most: int) -> bytes:
    parts = []
    left = most + 1
    with pa.CompressedInputStream(pa.BufferReader(body), name) as stream:
        # read() would lose the memory that it asked for each time a stream is broken
        while left > 0 and (part := stream.read_buffer(min(left, _STEP))).size:
            parts.append(part)
            left -= part.size
    return b"".join(parts)


def compress(body: bytes, name: str) -> bytes:
    """The stored form of a body: a zlib stream, an LZ4 frame or a zstd frame."""
    if name == "zlib":
        return zlib.compress(body)
    if name == "lz4":
        return _lz4_frame(body)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(body)
    return bytes(sink.getvalue())


def _lz4_frame(body: bytes) -> bytes:
    """A frame of independent blocks, as `Lz4Compressor` writes it: lz4-java can't read the linked blocks of Arrow's frames."""
    codec = pa.Codec("lz4_raw")
    parts = [_LZ4_HEAD]
    for at in range(0, len(body), _LZ4_BLOCK):
        block = body[at : at + _LZ4_BLOCK]
        packed = codec.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += [len(packed).to_bytes(4, "little"), packed]
        else:
            parts += [(len(block) | _LZ4_STORED).to_bytes(4, "little"), block]
    return b"".join([*parts, bytes(4)])


def body_crc(body: bytes | memoryview) -> int:
    """BODYCRC of a stored body (`UtilAll#crc32`); 0 for an empty one."""
    return zlib.crc32(body) & CRC_MASK


def crc_property(record: bytes | memoryview) -> bytes:
    """The 20 bytes that close a record written with enabledAppendPropCRC; `record` is all that stands before them."""
    digits = str(zlib.crc32(record) & CRC_MASK).zfill(10)[::-1]
    return CRC_PROPERTY + bytes([SEPARATOR_NAME]) + digits.encode() + b"\x02"


def stored_crc_property(record: bytes | memoryview) -> bytes | None:
    """The `__CRC32#` block at the end of a whole record, or None where the record has none."""
    tail = bytes(record[-CRC_PROPERTY_SIZE:])
    return tail if tail.startswith(CRC_PROPERTY + bytes([SEPARATOR_NAME])) else None
