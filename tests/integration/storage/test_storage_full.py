"""The shared storage is full for a while: what the runbook says about it, step by step."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.storage.test_storage_away import PLAIN
from tests.integration.streams import SCRIPT, Stream
from tests.unit.adapters.small_disks import small_disk

pytestmark = [pytest.mark.integration, pytest.mark.long]

_PIECE = b"x" * 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", "64m") as disk:
        yield disk


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path, disk: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path / "user", class_archive.parent))
    try:
        storage = ("-D", f"high-availability.storageDir={disk / 'emberkeep'}")
        cluster.up("--task-managers", "1", "--slots", "1", "--memory", "4g", *QUICK, *storage)
        yield cluster
    finally:
        cluster.close()


class Filler:
    """A file that takes all the room of a disk, also what others give back there meanwhile."""

    def __init__(self, disk: Path) -> None:
        self._path = disk / "filler"

    def fill(self) -> None:
        with self._path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(_PIECE):
                pass

    def remove(self) -> None:
        self._path.unlink()


def wait_for_batches(cluster: Cluster, job_id: JobId, stream: Stream, count: int) -> None:
    wanted = stream.batches() + count
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))


def test_a_stream_that_fails_for_want_of_room_is_started_again_and_goes_on_from_its_checkpoint(
    cluster: Cluster, disk: Path, tmp_path: Path
) -> None:
    stream, filler, place = Stream(tmp_path / "rows"), Filler(disk), tmp_path / "plain"
    place.mkdir()
    cluster.shell.write("counted.py", SCRIPT)
    cluster.shell.write("plain.py", PLAIN)
    options = (str(stream.place), f"checkpointLocation={disk / 'checkpoint'}")
    first = cluster.submit("counted.py", arguments=options)
    wait_for_batches(cluster, first, stream, 5)
    plain = cluster.submit("plain.py", arguments=(str(place),))
    driver = cluster.wait_for_driver(plain)

    def has_failed() -> bool:
        filler.fill()
        return cluster.job(first).state.is_globally_terminal

    until(has_failed, lambda: cluster.story(first))
    assert cluster.wait_for_end(first, JobStatus.FAILED).emberkeep.attempt == 1
    shown = cluster.shell.done("info", first).out
    assert "No space left on device" in shown, cluster.story(first)
    (free,) = (line for line in cluster.metrics().splitlines() if line.startswith("emberkeep_storage_free_bytes "))
    assert float(free.split()[1]) < 5 * 2**30, "the alert is raised"
    filler.fill()
    refused = cluster.shell.run("submit", "-q", "plain.py", str(place))
    assert refused.code != 0
    assert "No space left on device" in refused.err, refused
    assert re.search("free (some )?space", refused.err), refused

    # What needs no room goes on.
    count = place / f"{driver}.count"
    before = count.stat().st_size
    until(lambda: count.stat().st_size > before, "the other job goes on")
    assert cluster.wait_for_driver(plain) == driver

    filler.remove()
    again = cluster.submit("counted.py", arguments=options)
    wait_for_batches(cluster, again, stream, 5)
    stream.finish()
    cluster.wait_for_end(again)
    stream.check()
    assert len(stream.drivers()) == 2
    (place / "end").touch()
    assert cluster.wait_for_end(plain).emberkeep.attempt == 1
