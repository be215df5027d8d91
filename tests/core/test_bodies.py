"""Bodies as stored: told from decompressed ones, compressed by option, and never with a flag that lies."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from store_core.bodies import is_compressed
from store_core.codecs import compress, decompress
from store_core.errors import OptionError
from tests.core.test_encode import decoded, records, run_of

PLAIN = b"a body that compresses, " * 20
FLAGS = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}


def row(body: bytes, sys_flag: int, crc_of: bytes | None = None, **more: Any) -> dict[str, Any]:
    given = {"topic": "T", "body": body, "sysFlag": sys_flag, **more}
    return given if crc_of is None else {**given, "bodyCRC": zlib.crc32(crc_of) & 0x7FFFFFFF}


def stored(run: Any) -> bytes:
    (record,) = records(run)
    length = int.from_bytes(record[84:88], "big")
    return record[88 : 88 + length]


@pytest.mark.parametrize("name", FLAGS)
def test_what_is_compressed_stays(name: str) -> None:
    body = compress(PLAIN, name)
    asked: list[dict[str, Any]] = [{"bodyFormat": "raw"}, {"preserve": "true", "bodyFormat": "raw"}]
    for options in asked:
        assert stored(run_of([row(body, FLAGS[name], queueOffset=0)], **options)) == body
    for options in [{}, *asked]:
        assert stored(run_of([row(body, FLAGS[name], body, queueOffset=0)], **options)) == body


@pytest.mark.parametrize("name", FLAGS)
def test_what_was_decompressed_is_compressed_again(name: str) -> None:
    asked: list[dict[str, Any]] = [{}, {"bodyFormat": "decoded"}]
    for given in (row(PLAIN, FLAGS[name]), row(PLAIN, FLAGS[name], compress(PLAIN, name)), row(PLAIN, FLAGS[name], PLAIN)):
        for options in asked:
            run = run_of([given], **options)
            assert decompress(stored(run), FLAGS[name], 1 << 20) == PLAIN
            assert decoded(run)["sysFlag"] == [FLAGS[name]]


def test_what_can_not_be_told_is_refused() -> None:
    stream = zlib.compress(PLAIN)
    for given in (row(stream, 0x301, zlib.compress(stream)), row(stream, 0x301)):
        with pytest.raises(OptionError, match=r"column 'bodyCRC' is .* in row 0, topic 'T'; .* Set the option bodyFormat"):
            run_of([given])
        assert stored(run_of([given], bodyFormat="raw")) == stream
        assert zlib.decompress(stored(run_of([given], bodyFormat="decoded"))) == stream


def test_raw_means_raw() -> None:
    with pytest.raises(OptionError, match=r"column 'body' is .*; expected a zlib stream, as sysFlag 0x301 says"):
        run_of([row(PLAIN, 0x301)], bodyFormat="raw")


def test_a_compression_that_is_none() -> None:
    with pytest.raises(OptionError, match="column 'sysFlag' is 1281"):
        run_of([row(PLAIN, 0x501)])


@pytest.mark.parametrize("name", FLAGS)
def test_compression_by_option(name: str) -> None:
    lz4 = compress(PLAIN, "lz4")
    rows = [row(PLAIN, 0), row(b"short", 0), row(PLAIN, 0x301), row(lz4, 0x101, lz4)]
    run = run_of(rows, compression=name, compressMsgBodyOverHowmuch=100)
    found = decoded(run)
    assert found["body"] == [PLAIN, b"short", PLAIN, PLAIN]
    assert found["sysFlag"] == [FLAGS[name], 0, FLAGS[name], 0x101]


def test_compression_none_clears_the_flag_of_decompressed_bodies() -> None:
    run = run_of([row(PLAIN, 0x301, zlib.compress(PLAIN))], compression="none")
    assert stored(run) == PLAIN and decoded(run)["sysFlag"] == [0]


def test_old_brokers_know_zlib_alone() -> None:
    run = run_of([row(PLAIN, 0)], compression="zlib", compressMsgBodyOverHowmuch=1, targetVersion="4.9.0")
    assert decoded(run)["sysFlag"] == [1] and decoded(run)["body"] == [PLAIN]


def test_preserve_keeps_what_a_broker_stored() -> None:
    given = row(b"no stream", 0x301, b"no stream", queueOffset=0)
    assert stored(run_of([given], preserve="true")) == b"no stream"


@pytest.mark.parametrize("name", FLAGS)
def test_whole_streams_alone_are_compressed(name: str) -> None:
    body = compress(PLAIN, name)
    assert is_compressed(body, name)
    assert not is_compressed(body[:-5], name)
    assert not is_compressed(b"x^2 + y^2", name)
    assert not is_compressed(b"", name)


def test_bodies_of_the_greatest_size() -> None:
    assert len(run_of([row(b"x" * 100, 0)], maxMessageSize=100)) == 1
    with pytest.raises(OptionError, match=r"column 'body' is 101 in row 0, topic 'T'; expected at most 100 bytes \(maxMessage"):
        run_of([row(b"x" * 101, 0)], maxMessageSize=100)
