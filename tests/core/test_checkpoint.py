"""The checkpoint and the abort marker, as real brokers left them."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store_core.checkpoint import Checkpoint, abort_exists, decode_checkpoint, encode_checkpoint, read_checkpoint
from store_core.files import LocalFiles
from store_core.layout import CHECKPOINT, CHECKPOINT_SIZE
from tests.golden_stores import GOLDEN_NAMES, Golden

I64 = st.integers(-(1 << 63), (1 << 63) - 1)
CHECKPOINTS = st.builds(Checkpoint, *[I64] * 6)


def java_name(attribute: str) -> str:
    head, *rest = attribute.split("_")
    return head + "".join(part.capitalize() for part in rest)


def test_the_fields_are_those_of_the_layout_in_its_order() -> None:
    assert tuple(java_name(field.name) for field in dataclasses.fields(Checkpoint)) == CHECKPOINT.names


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_a_brokers_checkpoint_survives_decode_and_encode(golden: Golden, name: str) -> None:
    data = (golden(name) / "checkpoint").read_bytes()
    assert encode_checkpoint(decode_checkpoint(data)) == data
    assert read_checkpoint(LocalFiles(), str(golden(name))) == decode_checkpoint(data)


def test_times_are_those_of_the_last_message(golden: Golden) -> None:
    last = max(message["storeTimestamp"] for message in golden.messages("mixed-5.3.3"))
    checkpoint = read_checkpoint(LocalFiles(), str(golden("mixed-5.3.3")))
    assert checkpoint is not None
    assert checkpoint.physic_msg_timestamp == checkpoint.logics_msg_timestamp == last
    assert checkpoint.logics_physical_offset == 0


def test_a_5_5_broker_fills_the_sixth_field(golden: Golden) -> None:
    checkpoint = read_checkpoint(LocalFiles(), str(golden("crc-5.5.0")))
    assert checkpoint is not None and checkpoint.logics_physical_offset > 0
    places = {message["commitLogOffset"] for message in golden.messages("crc-5.5.0")}
    assert checkpoint.logics_physical_offset in places


@given(CHECKPOINTS)
def test_encode_then_decode_is_the_same_value(checkpoint: Checkpoint) -> None:
    data = encode_checkpoint(checkpoint)
    assert len(data) == CHECKPOINT_SIZE
    assert data == struct.pack(">6q", *dataclasses.astuple(checkpoint)) + bytes(CHECKPOINT_SIZE - 48)
    assert decode_checkpoint(data) == checkpoint


@given(CHECKPOINTS, st.integers(0, 60))
def test_a_shorter_file_is_read_as_if_zeros_followed(checkpoint: Checkpoint, length: int) -> None:
    data = encode_checkpoint(checkpoint)[:length]
    assert decode_checkpoint(data) == decode_checkpoint(data + bytes(CHECKPOINT_SIZE - length))


def test_bytes_behind_the_fields_do_not_count() -> None:
    assert decode_checkpoint(bytes(48) + b"\xff" * 5000) == Checkpoint()


def test_a_field_that_is_no_i64_is_refused() -> None:
    with pytest.raises(OverflowError):
        encode_checkpoint(Checkpoint(1 << 63))


def test_a_store_without_checkpoint(tmp_path: Path) -> None:
    assert read_checkpoint(LocalFiles(), str(tmp_path)) is None


@pytest.mark.parametrize("name", GOLDEN_NAMES)
def test_abort_is_there_after_a_kill_only(golden: Golden, name: str) -> None:
    assert abort_exists(LocalFiles(), str(golden(name))) == (name in ("crash-5.1.4", "dledger-4.9.7"))
