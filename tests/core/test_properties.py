"""Property strings of every oddness, split in batches, are what `MessageDecoder#string2messageProperties` makes of them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from store_core.properties import encode_properties, parse_properties, split
from tests.oracle import parse_props

ODD = [
    b"",
    b"a\x01b",
    b"a\x01b\x02",
    b"\x02",
    b"\x01",
    b"\x01\x02",
    b"\x02\x02\x02",
    b"a\x01\x02\x01b\x02ab\x02x\x01y",
    b"a\x01b\x01c\x02",
    b"a\x01\x01\x02",
    b"a\x01b\x02a\x01c\x02a\x01\x02",
    b"a\x01\x02a\x01b",
    b"KEYS\x01x\x02TAGS\x01y\x02UNIQ_KEY\x01z",
    b"KEYSX\x01no\x02XKEYS\x01no\x02KEYS\x01yes\x02",
    b"UNIQ_KEY\x01first\x02UNIQ_KEY\x01second\x02UNIQ_KEYS\x01no\x02UNIQ_KEX\x01no\x02",
    b"TAGS\x01\x00\x02",
    b"\x00\x01a\x02",
    b"a\x00b\x01c\x00d\x02",
    "键\x01🔑\x02".encode(),
    b"\xff\x01\xfe\x02",
    b"\xff\x01a\x02\xfe\x01b\x02",  # names that differ, but not as text
    b"x\x01y\x02longer than eight \xff\x01a\x02longer than eight \xfe\x01b\x02z\x01w\x02",
    b"\xe2\x01\x82\x02",
    b"a" * 300 + b"\x01" + b"b" * 3000 + b"\x02",
    b"no separator at all",
    b"a\x01b\x02\x02c\x01d\x02",
    b"__CRC32#\x010123456789\x02",
]


def check(strings: list[bytes]) -> None:
    memory = b"<" + b">".join(strings) + b">" + bytes(8)
    lengths = np.array([len(s) for s in strings], dtype=np.int64)
    starts = np.cumsum(lengths + 1) - lengths
    pairs = split(pa.py_buffer(memory), starts, lengths)
    expected = [parse_props(s) for s in strings]
    found = pairs.to_map()
    found.validate(full=True)
    lists = [list(one) for one in found.to_pylist()]
    assert [dict(one) for one in lists] == expected
    assert [len(one) for one in lists] == [len(one) for one in expected]
    for name in ("KEYS", "TAGS", "UNIQ_KEY", "a", "absent", "a" * 300):
        assert pairs.values(name).to_pylist() == [one.get(name) for one in expected]
    assert [parse_properties(s) for s in strings] == expected


@pytest.mark.parametrize("stored", ODD)
@pytest.mark.parametrize("times", [1, 3])
def test_one_kind_of_string(stored: bytes, times: int) -> None:
    check([stored] * times)


def test_no_strings() -> None:
    check([])


@pytest.mark.parametrize("seed", range(150))
def test_mixed_strings(seed: int) -> None:
    rng = random.Random(seed)
    pool = rng.sample(ODD, rng.randint(1, 5)) if rng.random() < 0.7 else ODD
    check([rng.choice(pool) for _ in range(rng.randint(1, 40))])


@pytest.mark.parametrize("seed", range(150))
def test_same_names_in_the_same_order(seed: int) -> None:
    """As a scan meets them nearly always; and with one string that does not fit among them."""
    rng = random.Random(seed)
    names = rng.sample(["KEYS", "TAGS", "UNIQ_KEY", "CLUSTER", "MSG_REGION", "WAIT", "a", "TRACE_ON", "名"], rng.randint(1, 6))
    names += rng.sample(names, rng.choice((0, 0, 1)))
    last = rng.random() < 0.5

    def one() -> bytes:
        values = [rng.choice(("x", "yy", "z" * 9, "值", "a\x01b" if rng.random() < 0.05 else "v")) for _ in names]
        text = "".join(f"{name}\x01{value}\x02" for name, value in zip(names, values, strict=True)).encode()
        return text if last else text[:-1]

    strings = [one() for _ in range(rng.randint(1, 30))]
    for _ in range(rng.choice((0, 0, 1, 2))):
        strings.insert(rng.randrange(len(strings) + 1), rng.choice([*ODD, one()[:-3], one() + b"\x02"]))
    check(strings)


@pytest.mark.parametrize("seed", range(60))
def test_random_bytes(seed: int) -> None:
    rng = random.Random(seed)
    check([bytes(rng.choices(b"ab\x00\x01\x02\x03", k=rng.randrange(12))) for _ in range(rng.randint(1, 30))])


@pytest.mark.parametrize("last", [True, False])
def test_encoded_and_parsed(last: bool) -> None:
    pairs = {"KEYS": "a b", "区域": "eu 🚀"}
    assert parse_properties(encode_properties(pairs, last_separator=last)) == pairs
