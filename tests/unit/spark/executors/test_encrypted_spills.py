"""What Python workers spill can be read by the process that wrote it, and by nobody who reads the disk."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from pyspark import shuffle
from pyspark.serializers import CompressedSerializer

from emberkeep.spark.executors.encrypted_spills import encrypt_spills

pytestmark = pytest.mark.req("SEC-10")

MARKER = "the-credit-card-of-somebody"
ROWS = [(number % 100, f"{MARKER}-{number}") for number in range(30_000)]


@pytest.fixture(autouse=True)
def encrypted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Undo afterwards what ``encrypt_spills`` changes."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(shuffle, "CompressedSerializer", CompressedSerializer)
    for name in ("__getstate__", "__setstate__"):
        monkeypatch.setattr(shuffle.ExternalList, name, getattr(shuffle.ExternalList, name))
    encrypt_spills()
    encrypt_spills()


def frames(data: bytes) -> Iterator[bytes]:
    while data:
        (length,) = struct.unpack("!i", data[:4])
        yield data[4 : 4 + length]
        data = data[4 + length :]


def is_readable(data: bytes) -> bool:
    """True if somebody who knows PySpark's format finds the marker."""
    for frame in frames(data):
        try:
            if MARKER.encode() in zlib.decompress(frame):
                return True
        except zlib.error:
            continue
    return False


def merger(kind: type[Any]) -> Any:
    aggregator: Any = shuffle.Aggregator(
        lambda row: [row], lambda rows, row: [*rows, row], lambda left, right: left + right
    )
    return kind(aggregator, memory_limit=1, partitions=3, batch=1000)


@pytest.mark.parametrize("kind", [shuffle.ExternalMerger, shuffle.ExternalGroupBy])
def test_what_is_merged(tmp_path: Path, kind: type[Any]) -> None:
    merging = merger(kind)
    merging.mergeValues(ROWS[:3000])
    spilled = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(map(len, spilled)) > 1000
    assert not any(map(is_readable, spilled))
    merging.mergeValues(ROWS[3000:6000])
    found = {key: sorted(values) for key, values in merging.items()}
    assert found == {key: sorted(text for each, text in ROWS[:6000] if each == key) for key in range(100)}


def test_what_is_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    spilled: list[bytes] = []
    unlink = os.unlink

    def look_and_unlink(path: str) -> None:
        spilled.append(Path(path).read_bytes())
        unlink(path)

    monkeypatch.setattr(os, "unlink", look_and_unlink)
    used = iter(range(10, 10_000_000, 10))  # as if no memory was released
    monkeypatch.setattr(shuffle, "get_used_memory", lambda: next(used))
    sorter: Any = shuffle.ExternalSorter(1)
    assert list(sorter.sorted(iter(reversed(ROWS)))) == sorted(ROWS)
    assert spilled
    assert not any(map(is_readable, spilled))


def listed() -> shuffle.ExternalList[str]:
    found: shuffle.ExternalList[str] = shuffle.ExternalList([])
    for _, text in ROWS:
        found.append(text)
    return found


def test_a_list_is_read_by_its_process_and_pickled_for_all() -> None:
    values = listed()
    assert values._file is not None
    values._file.seek(0)
    assert not is_readable(values._file.read())
    assert list(pickle.loads(pickle.dumps(values))) == [text for _, text in ROWS]
    program = "import pickle, sys; print(len(list(pickle.load(sys.stdin.buffer))))"
    for process in (
        program,
        f"from emberkeep.spark.executors.encrypted_spills import encrypt_spills; encrypt_spills(); {program}",
    ):
        ended = subprocess.run(
            [sys.executable, "-P", "-c", process], input=pickle.dumps(values), capture_output=True, check=True
        )
        assert ended.stdout.split() == [str(len(ROWS)).encode()]


def test_a_changed_file_is_noticed() -> None:
    values = listed()
    assert values._file is not None
    values._file.seek(40)
    values._file.write(b"\0")
    with pytest.raises(InvalidTag):
        list(values)
