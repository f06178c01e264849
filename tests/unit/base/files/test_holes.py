"""Freed parts of real files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.files.holes import data_ranges, has_hole, punch

BLOCK = 64 * 1024


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 64 * BLOCK)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
    yield descriptor
    os.close(descriptor)


def test_a_freed_range_takes_no_space_and_all_else_keeps_its_offset(file: int) -> None:
    os.fsync(file)
    before = os.fstat(file)

    punch(file, 8 * BLOCK, 56 * BLOCK)
    os.write(file, b"more")
    os.fsync(file)

    after = os.fstat(file)
    assert after.st_size == before.st_size + 4
    assert before.st_blocks * 512 - after.st_blocks * 512 >= 47 * BLOCK
    assert data_ranges(file, after.st_size) == [(0, 8 * BLOCK), (56 * BLOCK, after.st_size)]
    assert os.pread(file, 10, after.st_size - 6) == b"xxmore"
    assert not has_hole(file, 0, 8 * BLOCK)
    assert has_hole(file, 0, 8 * BLOCK + 1)


def test_holes_without_data_after_them_are_no_data(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 10 * BLOCK)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert data_ranges(descriptor, 10 * BLOCK) == []
        assert data_ranges(descriptor, 0) == []
    finally:
        os.close(descriptor)


def test_a_file_with_many_holes_is_not_followed_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "sieve"
    with path.open("wb") as file:
        for number in range(200):
            file.seek(number * 2 * BLOCK)
            file.write(b"x" * BLOCK)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        ranges = data_ranges(descriptor, 399 * BLOCK)
        assert len(ranges) == 64
        assert ranges[-1] == (126 * BLOCK, 399 * BLOCK)
    finally:
        os.close(descriptor)
