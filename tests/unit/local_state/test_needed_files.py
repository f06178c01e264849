"""Which files of a state store a start needs, by Spark's names and by what a RocksDB version refers to."""

from __future__ import annotations

import io
import zipfile

import pytest

from emberkeep.local_state.model import FileKind, FileStatus
from emberkeep.local_state.needed_files import needed_files, shared_files

UUID = "0815abcd-1234-5678-9abc-0123456789ab"


def entry(leaf: str, kind: FileKind = FileKind.FILE) -> FileStatus:
    return FileStatus(name=f"query/state/0/3/{leaf}", kind=kind, length=1, modified_ms=1, generation="g")


def needed(*leaves: str) -> list[str]:
    return [status.name.rpartition("/")[2] for status in needed_files(map(entry, leaves))]


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ((), ()),
        (("1.delta", "2.delta"), ("1.delta", "2.delta")),
        (("9.delta", "10.delta", "10.snapshot", "11.delta"), ("10.delta", "10.snapshot", "11.delta")),
        (("7.zip", "8.zip", "9.zip"), ("8.zip", "9.zip")),
        (("7.zip", "8.changelog", "9.changelog", "9.zip"), ("7.zip", "8.changelog", "9.changelog", "9.zip")),
        (("1.zip",), ("1.zip",)),
        (
            ("1.zip", "1.zip.crc", "2.zip", "2.zip.crc", "3.zip.crc", "3.zip"),
            ("2.zip", "2.zip.crc", "3.zip", "3.zip.crc"),
        ),
        (
            ("4.zip", f"5_{UUID}.zip", "6_a.changelog", "6_b.changelog"),
            (f"5_{UUID}.zip", "6_a.changelog", "6_b.changelog"),
        ),
    ],
)
def test_a_start_can_load_the_newest_version_and_the_one_before(
    there: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    assert needed(*there) == sorted(wanted, key=lambda name: (int(name.partition(".")[0].partition("_")[0]), name))


def test_other_files_and_directories_are_no_versions() -> None:
    entries = (entry("SSTs", FileKind.DIRECTORY), entry(f".3.delta.{UUID}.tmp"), entry("4.delta", FileKind.DIRECTORY))
    assert needed_files(entries) == ()


def zipped(text: str, name: str = "metadata") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, text)
    return buffer.getvalue()


def test_a_rocksdb_version_names_its_shared_files() -> None:
    sst = f'{{"localFileName":"000382.sst","dfsSstFileName":"000382-{UUID}.sst","sizeBytes":1504}}'
    log = f'{{"localFileName":"000004.log","dfsLogFileName":"000004-{UUID}.log","sizeBytes":9}}'
    text = f'v1\n{{"sstFiles":[{sst}],"logFiles":[{log}],"numKeys":6060}}'
    assert shared_files(zipped(text)) == (f"SSTs/000382-{UUID}.sst", f"logs/000004-{UUID}.log")
    assert shared_files(zipped('v1\n{"sstFiles":[],"numKeys":0}')) == ()


@pytest.mark.parametrize(
    "content",
    [
        b"no zip",
        zipped("v1\n{}", name="other"),
        zipped("v1\nno JSON"),
        zipped("v1\n[]"),
        zipped('v1\n{"sstFiles":[{"localFileName":"1.sst"}]}'),
        zipped('v1\n{"sstFiles":7}'),
    ],
)
def test_what_is_no_rocksdb_version_refers_to_nothing(content: bytes) -> None:
    assert shared_files(content) == ()


def test_a_shared_file_lies_in_its_directory() -> None:
    assert shared_files(zipped('v1\n{"sstFiles":[{"dfsSstFileName":"../../own/secret"}]}')) == ()


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_rocksdb_version_refers_to_nothing_that_is_an_error_here(compression: int) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("metadata", 'v1\n{"sstFiles":[]}' * 20)
    content = buffer.getvalue()
    for place in range(len(content)):
        for damage in (0x01, 0x80, 0xFF):
            damaged = bytearray(content)
            damaged[place] ^= damage
            shared_files(bytes(damaged))
        shared_files(content[:place])


def test_a_list_of_files_that_would_fill_the_memory_is_not_read() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata", 'v1\n{"sstFiles":[{"dfsSstFileName":"1.sst"}]}' + " " * 2**25)
    assert shared_files(buffer.getvalue()) == ()
