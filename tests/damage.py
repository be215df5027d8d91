"""Ways to damage a file of a copied store. Each returns what it did in a few words, for a test's message."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["append", "delete", "flip_bit", "overwrite", "swap", "truncate", "zero"]


def truncate(file: Path, size: int) -> str:
    """Cuts `file` down to its first `size` bytes."""
    before = file.stat().st_size
    if size > before:
        raise ValueError(f"{file.name} has {before} bytes, it can't be cut to {size}")
    os.truncate(file, size)
    return f"{file.name} cut from {before} to {size} bytes"


def flip_bit(file: Path, byte: int, bit: int) -> str:
    """Flips one bit (0 is the lowest) of the byte at position `byte`."""
    (old,) = read(file, byte, 1)
    write(file, byte, bytes([old ^ 1 << bit]))
    return f"bit {bit} of byte {byte} of {file.name} flipped: {old:#04x} to {old ^ 1 << bit:#04x}"


def zero(file: Path, start: int, length: int) -> str:
    """Sets bytes [start, start + length) to 0."""
    overwrite(file, start, bytes(length))
    return f"{file.name}: {length} bytes from {start} on set to 0"


def overwrite(file: Path, start: int, data: bytes) -> str:
    """Puts `data` over what is at `start`; the file keeps its length."""
    read(file, start, len(data))
    write(file, start, data)
    return f"{file.name}: {len(data)} bytes from {start} on overwritten with {data[:16].hex()}"


def swap(file: Path, first: int, second: int, length: int = 1) -> str:
    """Exchanges two ranges of `length` bytes that do not overlap."""
    if abs(first - second) < length:
        raise ValueError(f"ranges of {length} bytes at {first} and {second} overlap")
    one, two = read(file, first, length), read(file, second, length)
    write(file, first, two)
    write(file, second, one)
    return f"{file.name}: {length} bytes at {first} and {second} exchanged"


def append(file: Path, data: bytes) -> str:
    """Puts `data` behind the end of the file."""
    with file.open("ab") as out:
        out.write(data)
    return f"{len(data)} bytes appended to {file.name}"


def delete(file: Path) -> str:
    """Removes the file."""
    file.unlink()
    return f"{file.name} deleted"


def read(file: Path, start: int, length: int) -> bytes:
    with file.open("rb") as source:
        source.seek(start)
        data = source.read(length)
    if len(data) < length or start < 0:
        raise ValueError(f"{file.name} ends at {file.stat().st_size}, before {start + length}")
    return data


def write(file: Path, start: int, data: bytes) -> None:
    with file.open("r+b") as out:
        out.seek(start)
        out.write(data)
