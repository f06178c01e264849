"""Checkpoints of operators with their own state variables, which were copied or moved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import pytest

from emberkeep.base.errors import Conflict
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.queries.state_schemas import own_schemas, refer_to_own_schemas
from tests.unit.spark.files.files_on_disk import FilesOnDisk

HERE = "webhdfs://localhost/job-2/own/query-a"
OLD = "webhdfs://localhost/job-1/own/query-a"
SCHEMA = "state/0/_stateSchema/default/0_e334"
FILES = cast(HadoopFiles, FilesOnDisk())


def there_is(_: str) -> bool:
    return True


def entry(*paths: str) -> str:
    stores = [{"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": list(paths)}]
    body = {"operatorInfo": {"operatorId": 0}, "stateStoreInfo": stores, "operatorPropertiesJson": '{"a":"é"}'}
    return f"v2\n{json.dumps(body, separators=(',', ':'))}"


def checkpoint(place: Path, old: str, batches: int = 3) -> Path:
    directory = place / "state" / "0" / "_metadata" / "v2"
    directory.mkdir(parents=True)
    for batch in range(batches):
        (directory / str(batch)).write_text(entry(f"{old}/{SCHEMA}"))
    schema = place / SCHEMA
    schema.parent.mkdir(parents=True)
    schema.write_text("a schema")
    return directory


def test_schemas_of_another_checkpoint_become_its_own() -> None:
    assert own_schemas(entry(f"{OLD}/{SCHEMA}"), HERE, there_is) == entry(f"{HERE}/{SCHEMA}")


@pytest.mark.parametrize(
    ("there", "here"),
    [
        (f"{HERE}/{SCHEMA}", HERE),
        (f"file:/place/{SCHEMA}", "file:///place"),
        (f"file:/place/{SCHEMA}", "/place"),
    ],
)
def test_its_own_schemas_stay_as_they_are(there: str, here: str) -> None:
    assert own_schemas(entry(there), here, there_is) is None


def test_a_bucket_of_another_name_is_another_place() -> None:
    changed = own_schemas(entry(f"s3a://one/job/{SCHEMA}"), "s3a://two/job", there_is)
    assert changed == entry(f"s3a://two/job/{SCHEMA}")


@pytest.mark.parametrize("mark", ["#", "?", "%23", ":"])
def test_a_mark_in_a_path_does_not_hide_what_follows(mark: str) -> None:
    there, here = f"file:/mnt/a{mark}b/job-1/q", f"/mnt/a{mark}b/job-2/q"
    assert own_schemas(entry(f"{there}/{SCHEMA}"), here, there_is) == entry(f"{here}/{SCHEMA}")
    assert own_schemas(entry(f"file:{here}/{SCHEMA}"), here, there_is) is None


def test_a_schema_that_the_checkpoint_does_not_have_stays_where_it_is() -> None:
    assert own_schemas(entry(f"{OLD}/{SCHEMA}"), HERE, lambda _: False) is None


@pytest.mark.parametrize("text", ["", "v2\n{", 'v2\n{"stateStoreInfo":1}', "v2\n[]"])
def test_what_cannot_be_read_is_left_to_spark(text: str) -> None:
    assert own_schemas(text, HERE, there_is) is None


@pytest.mark.req("END-6")
def test_all_entries_of_a_restored_checkpoint_lead_to_its_own_schemas(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path, "file:/gone/query-a")
    refer_to_own_schemas(FILES, str(tmp_path), lambda: None)
    assert {path.read_text() for path in directory.iterdir()} == {entry(f"{tmp_path}/{SCHEMA}")}


def test_a_checkpoint_at_its_place_is_not_written_to(tmp_path: Path) -> None:
    checkpoint(tmp_path, f"file:{tmp_path}")

    def refuse() -> None:
        raise AssertionError("there is nothing to write")

    refer_to_own_schemas(FILES, str(tmp_path), refuse)


def test_a_start_that_ends_half_way_is_made_up_for_by_the_next_one(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path, "file:/gone/query-a")
    turns = iter([None, Conflict("a newer attempt has begun")])

    def may_commit() -> None:
        if (refusal := next(turns)) is not None:
            raise refusal

    with pytest.raises(Conflict):
        refer_to_own_schemas(FILES, str(tmp_path), may_commit)
    refer_to_own_schemas(FILES, str(tmp_path), lambda: None)
    assert {path.read_text() for path in directory.iterdir()} == {entry(f"{tmp_path}/{SCHEMA}")}


def test_other_operators_have_nothing_to_change(tmp_path: Path) -> None:
    (tmp_path / "state" / "0" / "_metadata").mkdir(parents=True)
    (tmp_path / "state" / "0" / "_metadata" / "metadata").write_text("v1\n{}")
    refer_to_own_schemas(FILES, str(tmp_path), lambda: None)
    assert (tmp_path / "state" / "0" / "_metadata" / "metadata").read_text() == "v1\n{}"
