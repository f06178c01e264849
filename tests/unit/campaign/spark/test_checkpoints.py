"""How far a query is, as its checkpoint says."""

from __future__ import annotations

import json
from pathlib import Path

from campaign.spark.checkpoints import Reached, directory_of, files_read, reached


def write_source(log: Path, name: str, entries: dict[str, int]) -> None:
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": path, "timestamp": 1, "batchId": batch}) for path, batch in entries.items()]
    (log / name).write_text("\n".join(["v1", *lines]))


def write_batch(checkpoint: Path, batch: int, *offsets: int, commit: bool = True) -> None:
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True, exist_ok=True)
    lines = ["v1", "{}", *(json.dumps({"logOffset": offset}) if offset >= 0 else "-" for offset in offsets)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))
    if commit:
        (checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def test_a_query_that_has_done_nothing(tmp_path: Path) -> None:
    assert reached(tmp_path / "gone") == Reached(-1, -1)
    assert files_read(tmp_path / "gone") == 0


def test_files_count_once_their_batch_is_committed(tmp_path: Path) -> None:
    write_source(tmp_path / "sources" / "0", "1.compact", {"a": 0, "b": 0, "c": 1})
    write_source(tmp_path / "sources" / "0", "2", {"d": 2})
    (tmp_path / "sources" / "0" / ".2.crc").write_bytes(b"")
    write_batch(tmp_path, 0, 0)
    write_batch(tmp_path, 1, 1)
    write_batch(tmp_path, 2, 2, commit=False)
    assert reached(tmp_path) == Reached(1, 2)
    assert files_read(tmp_path) == 3
    write_batch(tmp_path, 2, 2)
    assert files_read(tmp_path) == 4


def test_a_join_is_as_far_as_its_slower_side(tmp_path: Path) -> None:
    write_source(tmp_path / "sources" / "0", "0", {"a": 0})
    write_source(tmp_path / "sources" / "1", "0", {"a": 0})
    write_source(tmp_path / "sources" / "1", "1", {"b": 1})
    write_batch(tmp_path, 0, 0, 1)
    assert files_read(tmp_path) == 1
    write_batch(tmp_path, 1, -1, 1)
    assert files_read(tmp_path) == 0


def test_a_join_of_a_source_with_itself_has_one_log(tmp_path: Path) -> None:
    write_source(tmp_path / "sources" / "0", "0", {"a": 0, "b": 0})
    write_batch(tmp_path, 0, 0, 0)
    assert files_read(tmp_path) == 2


def test_a_location_is_a_path_or_a_uri() -> None:
    assert directory_of("file:///data/my%20jobs/1") == directory_of("/data/my jobs/1") == Path("/data/my jobs/1")
