"""The damage does what it says, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import damage

Damage = Callable[[Path], str]


@pytest.mark.parametrize(
    ("act", "left"),
    [
        (lambda f: damage.truncate(f, 3), b"012"),
        (lambda f: damage.flip_bit(f, 1, 7), b"0\xb123456789"),
        (lambda f: damage.zero(f, 2, 3), b"01\0\0\x0056789"),
        (lambda f: damage.overwrite(f, 8, b"xy"), b"01234567xy"),
        (lambda f: damage.swap(f, 1, 8), b"0823456719"),
        (lambda f: damage.swap(f, 6, 0, 4), b"6789450123"),
        (lambda f: damage.append(f, b"ab"), b"0123456789ab"),
    ],
)
def test_damage(tmp_path: Path, act: Damage, left: bytes) -> None:
    file = tmp_path / "victim"
    file.write_bytes(b"0123456789")
    assert "victim" in act(file)
    assert file.read_bytes() == left


def test_delete(tmp_path: Path) -> None:
    file = tmp_path / "victim"
    file.touch()
    assert damage.delete(file) == "victim deleted"
    assert not file.exists()


@pytest.mark.parametrize(
    "act",
    [
        lambda f: damage.truncate(f, 11),
        lambda f: damage.flip_bit(f, 10, 0),
        lambda f: damage.zero(f, 9, 2),
        lambda f: damage.overwrite(f, 9, b"xy"),
        lambda f: damage.swap(f, 0, 1, 2),
    ],
)
def test_damage_outside_the_file_is_an_error(tmp_path: Path, act: Damage) -> None:
    file = tmp_path / "victim"
    file.write_bytes(b"0123456789")
    with pytest.raises(ValueError, match=r"victim|overlap"):
        act(file)
    assert file.read_bytes() == b"0123456789"
