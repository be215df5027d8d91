"""Deterministic mutations: the same seed gives the same inputs, on every machine."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np

__all__ = ["batches", "grown", "mutant"]

NUMBERS = (0, 1, -1, 2, 8, 20, 40, 90, 91, 127, 128, 255, 0x7FFF, -0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, -0x80000000, 1 << 40)
WIDTHS = (1, 2, 4, 4, 4, 8, 8)
GROWN = 256 << 10


def mutant(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A seed after one to four changes: bits, fields of 1 to 8 bytes, cuts, pieces doubled, moved, or from another seed."""
    data = bytearray(seeds[int(rng.random() * len(seeds))])
    dice = rng.random
    for _ in range(1 + int(4 * dice() ** 3)):
        size = len(data)
        if not size:
            data += bytes([int(256 * dice())])
            continue
        at = int(dice() * size)
        kind = dice()
        if kind < 0.45:
            data[at] ^= 1 << int(8 * dice())
        elif kind < 0.70:
            width = WIDTHS[int(dice() * len(WIDTHS))]
            at = at & -4 if dice() < 0.5 else at
            old = int.from_bytes(data[at : at + width], "big")
            near = dice() < 0.4
            value = old + int(dice() * 9) - 4 if near else NUMBERS[int(dice() * len(NUMBERS))]
            data[at : at + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "big")[: size - at]
        elif kind < 0.78:
            data[at] = int(256 * dice())
        elif kind < 0.84:
            del data[at:]
        elif kind < 0.89:
            del data[at : at + 1 + int(16 * dice())]
        elif kind < 0.95:
            start = int(dice() * size)
            data[at:at] = data[start : start + 1 + int(24 * dice())]
        else:
            other = seeds[int(dice() * len(seeds))]
            cut = int(dice() * (len(other) + 1))
            data[at:] = other[cut:]
    return bytes(data)


def grown(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """A short piece of a mutant repeated over 256 KiB: what takes more than linear time or memory shows here."""
    data = mutant(rng, seeds) or b"\0"
    at = rng.randrange(len(data))
    piece = data[at : at + rng.choice((1, 2, 3, 4, 7, 20, 91, 500))]
    head, tail = data[: rng.choice((0, 0, at))], data[rng.choice((at, len(data))) :]
    return head + piece * (GROWN // len(piece)) + tail


def changed(rng: np.random.RandomState, seeds: Sequence[bytes], count: int) -> list[bytes]:
    """`count` seeds that keep their lengths, with changes in their bytes: many at once, for a small part of `mutant`'s time."""
    picked = [seeds[i] for i in rng.randint(0, len(seeds), count).tolist()]
    lengths = np.array([len(data) for data in picked])
    ends = np.cumsum(lengths)
    data = np.frombuffer(b"".join(picked) + bytes(8), dtype=np.uint8).copy()
    for share, kind in ((1.0, "bit"), (0.3, "bit"), (0.2, "byte"), (0.4, "number")):
        which = np.flatnonzero((rng.random_sample(count) < share) & (lengths > 0))
        at = (ends - lengths)[which] + (rng.random_sample(len(which)) * lengths[which]).astype(np.int64)
        if kind == "bit":
            data[at] ^= np.uint8(1) << rng.randint(0, 8, len(at)).astype(np.uint8)
        elif kind == "byte":
            data[at] = rng.randint(0, 256, len(at))
        else:
            numbers = np.array(NUMBERS)[rng.randint(0, len(NUMBERS), len(at))]
            width = np.array(WIDTHS)[rng.randint(0, len(WIDTHS), len(at))]
            for n in range(8):
                own = (n < width) & (at + n < ends[which])
                data[at[own] + n] = (numbers >> 8 * np.maximum(width - 1 - n, 0))[own] & 0xFF
    memory = data.tobytes()
    return [memory[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def batches(target: str, seeds: Sequence[bytes], size: int, seed: int) -> Iterator[list[bytes]]:
    """Endless lists of `size` mutants, one in eight of them changed in its structure too."""
    rng = random.Random(f"{target} {seed}")
    many = np.random.RandomState(rng.getrandbits(32))
    while True:
        whole = max(size // 8, 1)
        yield [mutant(rng, seeds) for _ in range(whole)] + changed(many, seeds, size - whole)
