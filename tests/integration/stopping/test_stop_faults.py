"""Stops that fail or whose drivers die, at each step; cancellations; savepoints that are refused. With real Spark.

What user functions are called for is compared with the table of END-3, attempt by attempt.
"""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import Ended, Shell
from tests.integration.conditions import until
from tests.integration.input_files import put_input

pytestmark = [pytest.mark.integration, pytest.mark.long]

_JOB = Path(__file__).with_name("fated_job.py")
_START, _ROWS = 1_600_000_000, 10  # rows of a file: one window of ten seconds
_STOP_SECONDS = 720.0  # several drivers one after the other
_SAVEPOINT = ("snapshot_state", "savepoint", "manifest", "notify_checkpoint_complete")
# The table of END-3; with executors, whose functions are called first.
SUSPEND = (*_SAVEPOINT, "close")
DRAIN = ("MAX_WATERMARK", "prepare_to_shutdown", *_SAVEPOINT, "shutdown", "close")
FINITE = ("prepare_to_shutdown", "shutdown", "close")
CANCEL = ("close",)

# Fates, in the order of the attempts that suffer them. Each but the last leaves the stop to the next attempt.
SUSPEND_DEATHS = ("driver savepoint", "driver manifest", "driver notify_checkpoint_complete", "driver close")
DRAIN_DEATHS = (
    "driver MAX_WATERMARK",
    "executor prepare_to_shutdown",
    "executor snapshot_state",
    "driver savepoint",
    "driver manifest",
    "executor notify_checkpoint_complete",
    "driver shutdown",
    "driver close",
)
# (how the job is stopped, which call has which fate, what the user reads).
FAILURES = (
    (("--drain",), "executor prepare_to_shutdown", "raise", "OSError: nobody answers"),
    (("--drain",), "driver MAX_WATERMARK", "raise", "the drain is abandoned because its batch"),
    (("--drain",), "executor snapshot_state", "lose", "the instance was lost"),
    (("--drain",), "driver prepare_to_shutdown", "raise", "OSError: nobody answers"),
    ((), "driver snapshot_state", "raise", "OSError: nobody answers"),
    ((), "driver snapshot_state", "large", "File too large"),
)


class Called(NamedTuple):
    attempt: int
    process: int
    visible: int  # files of the sink's output, at that time
    call: str


class FatedJobs:
    """Jobs over one input and one output below ``place``."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self.cluster, self.place = cluster, place
        self.savepoints = place / "savepoints"
        self.files = 0
        (place / "in").mkdir(parents=True)
        self.decide()

    def decide(self, *fates: tuple[int, str, str]) -> None:
        """(attempt, call, fate)."""
        aside = self.place / "fate.new"
        aside.write_text(json.dumps(fates))
        aside.rename(self.place / "fate")

    def more(self) -> None:
        """Another file: the rows of a window, which comes out with the file after it, or by a drain."""
        first = self.files * _ROWS
        times = [time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_START + first + n)) for n in range(_ROWS)]
        lines = (json.dumps({"k": "ab"[n % 2], "t": text}) for n, text in enumerate(times))
        put_input(self.place / "in" / f"{self.files:05}.json", "\n".join(lines))
        self.files += 1

    def submit(self, mode: str, *options: str, arguments: tuple[str, ...] = ()) -> JobId:
        return self.cluster.submit(_JOB, *options, arguments=(str(self.place), mode, *arguments))

    def stop(self, job: JobId, *options: str) -> Ended:
        words = ("stop", job, "--savepoint-path", str(self.savepoints), *options)
        return self.cluster.shell.run(*words, seconds=_STOP_SECONDS)

    def windows(self) -> Counter[int]:
        """Rows by window; each comes out once."""
        found: Counter[int] = Counter()
        for path in (self.place / "checkpoints" / "out").glob("batch-*"):
            for start, _, count in json.loads(path.read_text()):
                found[(start - _START) // _ROWS] += count
        return found

    def wait_for_window(self, job: JobId, number: int) -> None:
        self.cluster.wait_for(job, lambda _: self.windows()[number], f"window {number} comes out")

    def visible(self) -> list[int]:
        """Seconds of the rows that readers of the sink's output see."""
        path = self.place / "visible"
        if not any(path.glob("*.parquet")):
            return []
        return sorted(int(stamp.timestamp()) - _START for stamp in pd.read_parquet(path)["t"])

    def calls(self, job: JobId) -> list[Called]:
        """As they were written down; without those of instances that Spark has let go of, idle for a minute."""
        path = self.place / "calls"
        lines = [line.split(" ", 4) for line in path.read_text().splitlines()] if path.exists() else []
        found = [Called(int(of), int(process), int(files), call) for at, of, process, files, call in lines if at == job]
        gone = ["executor snapshot_state", "executor close"]
        left = {
            process
            for process in {each.process for each in found}
            if [each.call for each in found if each.process == process] == gone
        }
        return [each for each in found if each.process not in left]

    def attempt(self, job: JobId, number: int, after: int = 0) -> list[str]:
        """Its calls; of several instances of one function, and in batches of one drain, each counts once. ``after``: so
        many calls of the job."""
        calls = [each.call for each in self.calls(job)[after:] if each.attempt == number]
        return [call for call, _ in itertools.groupby(calls)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path_factory.mktemp("stops"), class_archive.parent))
    restarts = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.attempts=20")
    try:
        cluster.up("--slots", "2", *QUICK, *restarts, "-D", "restart-strategy.fixed-delay.delay=100ms")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def jobs(cluster: Cluster, tmp_path: Path) -> Iterator[FatedJobs]:
    yield FatedJobs(cluster, tmp_path / "place")
    cluster.cancel_all()
    cluster.wait_until_idle()


def expected(plan: tuple[str, ...], last: str, executors: bool) -> list[str]:
    """The calls of an attempt, up to the one that it dies of."""
    calls = []
    for call in plan:
        both = executors and call not in ("MAX_WATERMARK", "savepoint", "manifest")
        calls += [f"executor {call}", f"driver {call}"] if both else [f"driver {call}"]
    return calls[: calls.index(last) + 1]


@pytest.mark.req("END-1", "END-2", "END-3", "END-5", "END-6", "END-7", "END-8", "SAFE-24")
def test_stops_that_fail_a_suspend_whose_drivers_die_and_cancellations(jobs: FatedJobs) -> None:
    jobs.more()
    first = jobs.submit("stream")
    _stops_fail(jobs, first)

    batch = jobs.submit("batch")
    suspended = _suspended(jobs, first)
    jobs.cluster.wait_for_end(batch)
    assert jobs.attempt(batch, 1) == expected(FINITE, "driver close", executors=True)

    endless = jobs.submit("endless")
    second = jobs.submit("handling", "--from-savepoint", suspended)
    _canceled(jobs, second, endless)
    assert set(jobs.windows().values()) == {_ROWS}, "each window once, with all its rows"


@pytest.mark.req("END-1", "END-2", "END-3", "END-4", "END-7", "END-8", "SAFE-24")
def test_a_drain_whose_drivers_die_and_savepoints_that_are_refused(jobs: FatedJobs) -> None:
    jobs.more()
    first = jobs.submit("stream")
    older = _saved(jobs, first)
    drained = _drained(jobs, first)
    _refused(jobs, older, drained)


def _stops_fail(jobs: FatedJobs, job: JobId) -> None:
    """END-6: each leaves the job as it was, in its first attempt."""
    for number, (options, call, fate, words) in enumerate(FAILURES, 1):
        jobs.more()
        jobs.wait_for_window(job, number - 1)
        jobs.decide((1, call, fate))
        failed = jobs.stop(job, *options)
        assert failed.code == 1, failed
        assert words in failed.err, failed
        assert not list(jobs.savepoints.glob("*")), "nothing is left of it"
    jobs.decide()
    jobs.more()
    jobs.wait_for_window(job, len(FAILURES))
    assert jobs.cluster.job(job).emberkeep.attempt == 1
    ends = ("executor shutdown", "driver shutdown", "driver close", "driver notify_checkpoint_complete")
    assert not set(ends) & set(jobs.attempt(job, 1)), "functions are not told of an end that does not come"


def _suspended(jobs: FatedJobs, job: JobId) -> str:
    jobs.more()
    jobs.wait_for_window(job, jobs.files - 2)  # an instance has just worked, so it is not let go of
    before, already = jobs.visible(), len(jobs.calls(job))
    jobs.decide(*((attempt, call, "die") for attempt, call in enumerate(SUSPEND_DEATHS, 1)))
    stopped = jobs.stop(job)
    assert stopped.code == 0, jobs.cluster.story(job)
    details = jobs.cluster.wait_for_end(job)
    assert details.emberkeep.attempt == len(SUSPEND_DEATHS), "the end was recorded: no attempt follows"
    for attempt, death in enumerate(SUSPEND_DEATHS, 1):
        calls = jobs.attempt(job, attempt, already)
        if attempt == 1 and calls[-1] == "executor close":
            del calls[-1]  # of a worker that has had the time for it, its driver being dead
        # Each attempt has kept the state for the next one before it wrote its savepoint.
        given = [f"driver initialize_state {attempt - 1}"] if attempt > 1 else []
        # Only in the first one a batch has run, so no others have workers.
        assert calls == [*given, *expected(SUSPEND, death, executors=attempt == 1)], attempt
    assert jobs.visible() == before, "nothing is flushed"
    return stopped.out.strip()


def _canceled(jobs: FatedJobs, stream: JobId, batch: JobId) -> None:
    """One has a handler of its own for SIGTERM, the other one stops Spark in an exit handler: no good ends."""
    before = jobs.visible()
    jobs.decide()
    until(lambda: "driver goes on" in jobs.attempt(batch, 1), lambda: jobs.cluster.story(batch))
    jobs.more()
    jobs.wait_for_window(stream, jobs.files - 2)
    for job, begun in ((stream, [f"driver initialize_state {len(SUSPEND_DEATHS)}"]), (batch, ["driver goes on"])):
        jobs.cluster.cancel(job)
        jobs.cluster.wait_for_end(job, JobStatus.CANCELED)
        assert jobs.attempt(job, 1) == [*begun, *expected(CANCEL, "driver close", executors=True)]
    assert jobs.visible() == before, "what waits is not shown, what was shown stays"


def _saved(jobs: FatedJobs, job: JobId) -> str:
    jobs.more()
    jobs.wait_for_window(job, 0)
    made = jobs.cluster.shell.done("savepoint", "create", job, "--savepoint-path", str(jobs.savepoints))
    assert jobs.attempt(job, 1) == expected(_SAVEPOINT, "driver notify_checkpoint_complete", executors=True)
    return made.out.strip()


def _drained(jobs: FatedJobs, job: JobId) -> str:
    """What comes while it drains is not read."""
    jobs.more()
    jobs.wait_for_window(job, jobs.files - 2)
    read, before = jobs.files, jobs.visible()
    jobs.decide(*((attempt, call, "die") for attempt, call in enumerate(DRAIN_DEATHS, 1)))
    words = ("stop", job, "--drain", "--savepoint-path", str(jobs.savepoints))
    stopping = jobs.cluster.shell.start(*words)
    until(lambda: jobs.attempt(job, 2), lambda: jobs.cluster.story(job))
    jobs.more()
    stopped = stopping.wait(_STOP_SECONDS)
    assert stopped.code == 0, jobs.cluster.story(job)
    details = jobs.cluster.wait_for_end(job)
    assert details.emberkeep.attempt == len(DRAIN_DEATHS), "the end was recorded: no attempt follows"
    complete = DRAIN_DEATHS.index("executor notify_checkpoint_complete") + 1
    kept = DRAIN_DEATHS.index("driver savepoint") + 1  # the first attempt that has kept a state after _saved
    for attempt, death in enumerate(DRAIN_DEATHS, 1):
        calls = jobs.attempt(job, attempt)
        if death != "driver close" and calls[-1] == "executor close":
            del calls[-1]  # of a worker that has had the time for it, its driver being dead
        began = calls.index(DRAIN_DEATHS[0])
        assert calls[began:] == expected(DRAIN, death, executors=True), attempt
        if attempt > 1:
            assert calls[:began] == [f"driver initialize_state {1 + max(0, attempt - kept)}"], attempt
    assert len({each.visible for each in jobs.calls(job) if each.attempt <= complete}) == 1
    assert len(before) < len(jobs.visible())
    assert jobs.visible() == list(range(read * _ROWS)), "all that was read, once"
    assert jobs.windows() == Counter(dict.fromkeys(range(read), _ROWS))
    return stopped.out.strip()


def _refused(jobs: FatedJobs, older: str, drained: str) -> None:
    """Together: no savepoint with a changed byte, none without the script's query, none older than the output."""
    jobs.decide()
    before = jobs.visible()
    damaged = jobs.place / "damaged"
    shutil.copytree(drained, damaged)
    victim = max((path for path in damaged.glob("queries/query-windows/**/*") if path.is_file()), key=str)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    verified = jobs.cluster.shell.run("savepoint", "verify", str(damaged))
    assert verified.code == 1, verified
    cases = (
        (str(damaged), "windows", f"{victim.name} is damaged"),
        (drained, "renamed", "has no state for query 'renamed'; it has state for 'windows'"),
        (older, "windows", "the query was started from an older checkpoint or savepoint"),
    )
    started = [
        jobs.submit("stream", "--from-savepoint", path, arguments=(str(jobs.place / f"fresh-{number}"), name))
        for number, (path, name, _) in enumerate(cases)
    ]
    for number, (job, (_, _, words)) in enumerate(zip(started, cases, strict=True)):
        jobs.cluster.wait_for_end(job, JobStatus.FAILED)
        assert words in jobs.cluster.shell.run("info", job).out
        if number == 0:
            assert not (jobs.place / f"fresh-{number}").exists(), "nothing of it is put into its place"
    assert jobs.visible() == before
