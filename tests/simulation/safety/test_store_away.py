"""A leader that cannot write to its store: what it hears of ends is not lost, and it decides nothing."""

from __future__ import annotations

import contextvars
from dataclasses import dataclass

import pytest

from emberkeep.jobs.model import JobStatus
from emberkeep.testing.cluster import ClusterPlan
from emberkeep.testing.scripts import Script
from emberkeep.testing.simulation import Report, Run, play
from tests.simulation.test_crash_points import AWAY, check_end

BEYOND_THE_END = 40  # steps that a leader without its store goes through until nothing of the job is left


@dataclass
class Severed:
    """The leader loses its store when a driver tells it the end of its script, and dies ``steps`` steps later."""

    run: Run
    steps: int
    seen: int | None = None  # steps since then

    def step(self, process: str, what: str) -> None:
        leader = self.run.cluster.jm_process
        if process != "jobmanager" or leader is None:
            return
        if self.seen is None:
            if what == "receives ReportOutcome":
                self.run.cluster.store.severed.add(leader)
                self.seen = 0
            return
        self.seen += 1
        if self.seen == self.steps + 1:
            self.run.cluster.history.add("test", f"the leader dies at: {what}")
            self.kill()

    def kill(self) -> None:
        cluster = self.run.cluster
        assert cluster.jm_process is not None
        cluster.machines.kill(cluster.jm_process)
        # In a context of its own: what a dead process has scheduled never runs.
        self.run.loop.call_later(AWAY, cluster.start_job_manager, context=contextvars.Context())


def lived(steps: int) -> Report:
    """A job with several executors, all of which take long to end, succeeds while its leader cannot write."""

    async def story(run: Run) -> None:
        severed = Severed(run, steps)
        run.cluster.history.on_step.append(severed.step)
        job = run.cluster.submit("batch", Script(seconds=4.0, executors=3))
        await run.settle()
        check_end(run, job, JobStatus.FINISHED)
        await run.end_everything()

    return play(ClusterPlan(seed="severed", task_managers=1, slots=3, slow_ends=1.0, clinging_executors=True), story)


@pytest.mark.req("SAFE-9")
def test_a_job_whose_success_was_told_to_a_leader_without_its_store_is_not_run_again() -> None:
    """Whenever that leader dies, between two heartbeats as well."""
    failures = [report for steps in range(BEYOND_THE_END) if (report := lived(steps)).violations]
    assert not failures, f"{len(failures)} of {BEYOND_THE_END} deaths\n" + failures[0].failure()
