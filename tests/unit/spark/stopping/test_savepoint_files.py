"""Which files a savepoint takes from a checkpoint."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.spark.stopping.savepoint_files import (
    log_entries,
    needed_files,
    referenced_files,
    snapshots_with_references,
)


def _logs(last: int) -> list[str]:
    return [f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(last + 1)]


def test_logs_reach_from_the_batch_before_to_the_committed_one() -> None:
    names = ["metadata", ".metadata.crc", *_logs(9), "offsets/10", "offsets/.9.crc", "offsets/.11.tmp"]

    assert needed_files(names, 9, 9) == ["commits/8", "commits/9", "metadata", "offsets/8", "offsets/9"]
    assert needed_files(names, 9, 7)[:4] == ["commits/6", "commits/7", "commits/8", "commits/9"]
    assert needed_files(names, -1, -1) == ["metadata"]
    assert log_entries(names, "offsets") == list(range(11))


def test_state_begins_at_the_newest_snapshot_that_is_old_enough() -> None:
    deltas = [f"state/0/1/{version}.delta" for version in range(1, 13)]
    names = [*deltas, "state/0/1/5.snapshot", "state/0/1/8.snapshot", "state/0/1/12.snapshot"]
    described = ["state/0/_metadata/metadata", "state/0/0/_metadata/schema"]

    found = [name for name in needed_files([*names, *described], 9, 9) if name.startswith("state/")]

    assert found == sorted(["state/0/1/8.snapshot", "state/0/1/9.delta", "state/0/1/10.delta", *described])


def test_check_sums_of_state_files_go_with_them() -> None:
    names = [f"state/0/0/{version}.changelog{end}" for version in (1, 2, 3) for end in ("", ".crc")]

    assert needed_files(names, 1, 1) == sorted(name for name in names if not name.startswith("state/0/0/3"))


def test_a_gap_is_noticed() -> None:
    with pytest.raises(RetryLater, match="lacks version 2"):
        needed_files(["state/0/0/1.delta", "state/0/0/3.delta"], 2, 2)


def test_versions_with_several_authors_are_all_kept() -> None:
    names = [f"state/0/0/{version}_{author}.changelog" for version in (1, 2, 3) for author in ("a1", "b2")]

    assert needed_files(names, 1, 1) == names[:4]


def test_what_snapshots_refer_to() -> None:
    names = ["state/0/0/2.zip", "state/0/0/SSTs/000008-ca.sst", "state/0/0/SSTs/old.sst", "state/0/0/logs/7.log"]
    needed = needed_files(names, 1, 1)

    assert snapshots_with_references(needed) == ["state/0/0/2.zip"] == needed
    described = 'v1\n{"sstFiles":[{"localFileName":"000008.sst","dfsSstFileName":"000008-ca.sst","sizeBytes":1}]}'
    assert referenced_files(needed[0], described) == ["state/0/0/SSTs/000008-ca.sst"]


def test_a_compacted_source_log_begins_at_the_last_but_one() -> None:
    names = [f"sources/0/{n}" for n in range(30) if n % 10 != 9] + [f"sources/0/{n}.compact" for n in (9, 19, 29)]

    found = needed_files([*names, "sources/1/initial"], -1, -1)

    assert "sources/0/18" not in found
    assert {"sources/0/19.compact", "sources/0/20", "sources/0/29.compact", "sources/1/initial"} <= set(found)
