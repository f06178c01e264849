"""Stopping between batches, savepoints, drains and restores with real Spark, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.spark import stop_scripts
from tests.integration.spark.conftest import DriverRun, DriverRunner

pytestmark = [pytest.mark.integration, pytest.mark.long]

CONF = {"spark.executor.cores": "2"}


@pytest.mark.req("END-4", "END-5", "END-9")
def test_suspended_restored_killed_while_it_drains_and_read_on(drivers: DriverRunner, tmp_path: Path) -> None:
    """Every row is in the output once, whatever happens between; a drain is rolled forward by the next attempt."""
    root = tmp_path / "work"
    uri = root.as_uri()

    def run(mode: str, checkpoints: str, **settings: Any) -> DriverRun:
        place = f"{uri}/{checkpoints}"
        return drivers.run(
            stop_scripts.STORY,
            str(root),
            mode,
            f"{checkpoints}-own",
            spark_conf=CONF,
            checkpoint_root=place,
            job_id="a" * 32,
            **settings,
        )

    first = run("first", "one")
    assert first.exit_code == 0, first.stderr
    assert "failed" not in first.results(), first.results()
    assert first.results()["awaited"] == [False, False]
    assert first.results()["active"] == [True, 2, False], "to the script its queries run until the end is recorded"
    assert first.results()["ended"] == [False, False]

    older = run("older", "older", savepoint=f"{uri}/early")
    for place in ("refused", "kept"):
        assert "Spark's file sink would skip" in older.results()[place]
    for place in ("elsewhere", "new table"):
        assert "has no log of Spark's file sink" in older.results()[place]

    killed = run("crash", "two", savepoint=f"{uri}/suspended")
    assert killed.report["kind"] == "cancelled", killed.stderr
    assert "starts from the savepoint" in killed.stderr

    rolled = run("roll", "two", savepoint=f"{uri}/suspended", asked_before="DRAIN")
    assert rolled.exit_code == 0, rolled.stderr
    assert "failed" not in rolled.results(), rolled.results()
    assert "starts from the savepoint" not in rolled.stderr, "only the first start of a query is from the savepoint"

    last = run("after", "three", savepoint=f"{uri}/drained")
    assert last.exit_code == 0, last.stderr
    story = last.results()
    assert "failed" not in story
    assert story["windows"] == story["expected"]
    assert story["raw"] == list(range(84))


@pytest.mark.req("END-5", "END-9")
def test_a_stop_that_the_next_attempt_continues_has_a_query_whose_start_takes_long(
    drivers: DriverRunner, tmp_path: Path
) -> None:
    root = tmp_path / "work"
    ended = drivers.run(stop_scripts.SLOW_START, str(root), "first", spark_conf=CONF, job_id="a" * 32)
    assert ended.report["kind"] == "cancelled", ended.stderr
    continued = drivers.run(
        stop_scripts.SLOW_START, str(root), "next", spark_conf=CONF, job_id="a" * 32, asked_before="SUSPEND"
    )
    assert continued.exit_code == 0, continued.stderr
    assert continued.results() == {"saved": ["query-first", "query-second"]}
