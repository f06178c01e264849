"""All machines of a cluster with several streams are lost: they continue elsewhere, with all directories moved."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.conditions import DEADLINE, until
from tests.integration.stateful import SCRIPT as STATEFUL
from tests.integration.stateful import StatefulQueries
from tests.integration.storage.drill import Drill
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SAFE-23")]

SLOTS = 2
# Nobody is to be taken for lost here because a machine under load is slow.
UNHURRIED = ("-D", "heartbeat.timeout=15s", "-D", "job.driver.lease-timeout=30s")


class Streams:
    """Two jobs: one aggregates, and joins streams; the other one removes duplicates."""

    def __init__(self, drill: Drill, directory: Path) -> None:
        self._drill = drill
        self.queries = StatefulQueries(directory / "queries", "sums", "joined")
        self.rows = Stream(directory / "rows")
        drill.shell.write("stateful.py", STATEFUL)
        drill.shell.write("stream.py", SCRIPT)
        self.jobs = {
            "rows": self._submit("stream.py", (str(self.rows.place),)),
            "queries": self._submit("stateful.py", self.queries.arguments),
        }

    def _submit(self, script: str, arguments: tuple[str, ...], *options: str) -> JobId:
        return self._drill.cluster.submit(script, *options, arguments=arguments)

    def batches(self, name: str) -> int:
        return self.queries.batches() if name == "queries" else self.rows.batches()

    def wait_for_batches(self, more: int) -> None:
        """Until each has so many more."""
        wanted = {name: self.batches(name) + more for name in self.jobs}
        for name, job in self.jobs.items():
            until(
                lambda name=name: self.batches(name) >= wanted[name],  # type: ignore[misc]
                lambda job=job: self._drill.cluster.story(job),  # type: ignore[misc]
                2 * DEADLINE,  # some are done again, by processes that have just started
            )

    def restart_rows(self) -> None:
        """Stop that job, and start it from its savepoint as another one."""
        savepoint = self._drill.shell.done("stop", self.jobs["rows"]).out.strip().splitlines()[-1]
        assert savepoint.startswith(f"{self._drill.savepoints}/"), savepoint
        self._drill.cluster.wait_for_end(self.jobs["rows"])
        self.jobs["rows"] = self._submit("stream.py", (str(self.rows.place),), "--from-savepoint", savepoint)

    def finish(self) -> None:
        self.queries.finish()
        self.rows.finish()
        for job in self.jobs.values():
            self._drill.cluster.wait_for_end(job)

    def check(self) -> None:
        """The output of each is that of a batch job over what it has read."""
        self.queries.check()
        self.rows.check_rows()


@pytest.mark.parametrize(
    ("drill", "survives"),
    [(0, True), (3, False)],
    indirect=["drill"],
    ids=["file-storage-survives", "zookeeper-storage-is-lost"],
)
def test_streams_continue_in_a_new_cluster_whose_directories_are_elsewhere(
    drill: Drill, tmp_path: Path, survives: bool
) -> None:
    drill.up(*UNHURRIED, slots=SLOTS)
    streams = Streams(drill, tmp_path)
    until(lambda: streams.batches("rows") >= 2, "the stream runs")
    streams.restart_rows()
    streams.wait_for_batches(2)
    for job in streams.jobs.values():
        drill.shell.done("savepoint", "create", job)
    drill.shell.done("backup", "create", "--with-keys", *drill.settings(), str(drill.backup))
    streams.wait_for_batches(2)

    drill.lose_all_machines()
    drill.found_ensemble()
    if not survives:
        shutil.rmtree(drill.storage)
    old = drill.move(tmp_path / "elsewhere")
    drill.shell.done("backup", "verify", *drill.settings(), str(drill.backup))
    told = drill.shell.done("backup", "restore", "--yes", *drill.settings(), str(drill.backup)).out
    assert told.count("its checkpoints" if survives else f"savepoint {drill.savepoints}/") == len(streams.jobs), told
    drill.up(*UNHURRIED, slots=SLOTS)

    for job in streams.jobs.values():
        drill.cluster.wait_for(job, lambda job: job.state is JobStatus.RUNNING, "its next attempt runs")
    streams.wait_for_batches(2)
    assert f"{drill.savepoints}/" in drill.shell.done("savepoint", "create", streams.jobs["rows"]).out
    streams.finish()
    streams.check()
    listed = drill.shell.done("savepoint", "list", "-o", "json").out
    assert str(drill.savepoints) in listed
    for place in old:
        assert str(place) not in listed
        assert not place.exists(), "nothing is written where the lost cluster was"
