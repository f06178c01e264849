"""A savepoint's manifest."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.base.errors import NewerFormat
from emberkeep.base.files.durable import encode_record
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.errors import SavepointDamaged
from emberkeep.lifecycle.manifest import (
    MANIFEST_KIND,
    FunctionState,
    Manifest,
    QuerySavepoint,
    SavepointFile,
    decode_manifest,
    encode_manifest,
    function_file,
    key_of_named,
    key_of_unnamed,
    manifest_sha256,
    savepoint_directory,
)
from emberkeep.lifecycle.model import Procedure

JOB = JobId("0123456789abcdef0123456789abcdef")


def example(**changed: object) -> Manifest:
    query = QuerySavepoint(
        key="query-flights",
        name="flights",
        query_id="7b5c",
        sink="parquet",
        output_mode="append",
        target="/out",
        location="file:///checkpoints/flights",
        batch_id=41,
        offsets=('{"logOffset":41}',),
        watermark_ms=1000,
        drained_from=40,
    )
    files = (
        SavepointFile(path="queries/query-flights/offsets/41", size=300, sha256="ab" * 32),
        SavepointFile(path="queries/query-flights-2/offsets/41", size=300, sha256="ab" * 32),
        SavepointFile(path="functions/0", size=3, sha256="cd" * 32),
    )
    manifest = Manifest(
        job_id=JOB,
        job_name="flights",
        attempt=2,
        trigger_id="f" * 32,
        procedure=Procedure.DRAIN,
        created_ms=1,
        spark_version="4.3.0",
        emberkeep_version="0.1",
        queries=(query,),
        files=files,
        functions=(FunctionState(name="sink@0", path="functions/0"),),
    )
    return msgspec.structs.replace(manifest, **changed)


def test_a_query_that_was_not_drained_says_so() -> None:
    (drained,) = example().queries
    fields = {name: getattr(drained, name) for name in drained.__struct_fields__ if name != "drained_from"}
    assert QuerySavepoint(**fields).drained_from == -1


def test_what_was_written_is_read() -> None:
    data = encode_manifest(example())

    read = decode_manifest(data, "here")

    assert read == example()
    assert read.total_size == 603
    assert [file.path for file in read.files_of(read.queries[0])] == ["queries/query-flights/offsets/41"]
    assert len(manifest_sha256(data)) == 64


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_flipped_bit_goes_unnoticed(position: int, bit: int) -> None:
    data = bytearray(encode_manifest(example()))
    data[position % len(data)] ^= 1 << bit

    # A digit of the version may have become a higher one.
    with pytest.raises((SavepointDamaged, NewerFormat), match="here"):
        decode_manifest(bytes(data), "here")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            {"files": (SavepointFile(path="queries/../../etc/passwd", size=1, sha256=""),), "functions": ()},
            "is outside",
        ),
        ({"files": (SavepointFile(path="/etc/passwd", size=1, sha256=""),), "functions": ()}, "is outside"),
        ({"files": ()}, "the file 'functions/0' of function .* is not listed"),
        ({"queries": (msgspec.structs.replace(example().queries[0], key="../x"),)}, "not a directory name"),
        ({"queries": example().queries * 2}, "listed twice"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(changed: dict[str, object], problem: str) -> None:
    with pytest.raises(SavepointDamaged, match=problem):
        decode_manifest(encode_manifest(example(**changed)), "here")


def test_a_manifest_of_a_later_release_is_refused_by_its_version() -> None:
    with pytest.raises(NewerFormat, match="version 2 was written by a newer release"):
        decode_manifest(encode_record(MANIFEST_KIND, 2, b"{}"), "here")


def test_directories_and_keys() -> None:
    directory = savepoint_directory("file:///savepoints/", JOB, "f" * 32, 12)

    assert directory == "file:///savepoints/savepoint-01234567-ffffffffffff-12"
    assert function_file(3) == "functions/3"
    assert key_of_named("a/b") == "query-a%2Fb"
    assert key_of_unnamed(0, "my.Sink/x", "append") == "unnamed-0-my.Sink_x-append"


def test_the_key_of_a_long_name_is_a_directory_of_its_own(tmp_path: Path) -> None:
    longest = "x" * (255 - len("query-"))
    assert key_of_named(longest) == f"query-{longest}", "as in every release"
    names = [longest + "x", longest + "y", "注文" * 40, "注文" * 40 + "文", "a" + "注文" * 40]
    for name in names:
        key = key_of_named(name)
        (tmp_path / key).mkdir()
        assert "\ufffd" not in unquote(key), "no character is cut"
        assert key_of_named(name) == key
