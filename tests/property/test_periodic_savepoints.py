"""What holds for periodic savepoints whatever happens: no burst, nothing lost, and no record without its files."""

from __future__ import annotations

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from emberkeep.jobs.periodic.machine import SURPLUS_MOST
from emberkeep.jobs.periodic.model import DeleteFiles, Effect, MakeSavepoint, WriteRetention
from tests.campaign import examples
from tests.unit.jobs.periodic.periodic_job import QUERIES, PeriodicJob, settings

INTERVAL = 600.0


class AnyPeriodicJob(RuleBasedStateMachine):
    """Leaders and drivers come and go; savepoints, writes and deletions are slow, fail, or their leader is lost."""

    @initialize(retained=st.integers(1, 4), max_age=st.sampled_from([0.0, 100.0, 3000.0]), spread=st.floats(0.0, 1.0))
    def begin(self, retained: int, max_age: float, spread: float) -> None:
        self.job = PeriodicJob(settings(INTERVAL, retained, max_age), spread=spread)
        self.retained = retained
        self.open: list[Effect] = []  # decided, and not carried out yet
        self.asked_for: set[str] = set()
        self.asked_at: list[float] = []  # when this leader has asked for a savepoint, since the last one was made
        self.leader_since = self.job.now

    @rule(seconds=st.sampled_from([1.0, 29.0, 31.0, 300.0, 601.0]), is_free=st.booleans(), has_query=st.booleans())
    def look(self, seconds: float, is_free: bool, has_query: bool) -> None:
        job = self.job
        making = any(isinstance(effect, MakeSavepoint) for effect in self.open)
        job.is_free, job.queries = is_free and not making, QUERIES if has_query else frozenset()
        for effect in job.look(seconds):
            if isinstance(effect, MakeSavepoint):
                assert job.is_free
                assert has_query
                assert not job.made_ms or (job.ms - job.made_ms[-1]) / 1000 >= INTERVAL - 0.01, "a burst"
                periodic = sum(each.periodic for each in job.pointers.savepoints)
                assert periodic < self.retained + SURPLUS_MOST
                assert not self.asked_at or job.now - self.asked_at[-1] >= 29.9, "no pause after a failure"
                self.asked_at.append(job.now)
            if isinstance(effect, WriteRetention):
                assert not any(isinstance(each, WriteRetention) for each in self.open), "two writes at a time"
            if isinstance(effect, DeleteFiles):
                recorded = {each.path: each for each in job.pointers.savepoints}
                assert recorded[effect.savepoint.path].retired_ms, "its record says so first"
            self.open.append(effect)

    @rule(fails=st.booleans())
    def carry_out(self, fails: bool) -> None:
        if not self.open:
            return
        job, effect = self.job, self.open.pop(0)
        if not fails:
            job.carry_out(effect)
            if isinstance(effect, MakeSavepoint):
                self.asked_at = []
            return
        match effect:
            case MakeSavepoint():
                job.machine.failed("no space", None, now=job.now, ms=job.ms)
            case WriteRetention():
                job.machine.written(None)
            case DeleteFiles():
                job.machine.not_deleted("access denied", now=job.now)

    @rule()
    def a_person_asks(self) -> None:
        if not any(isinstance(effect, MakeSavepoint) for effect in self.open):
            self.asked_for.add(self.job.make(periodic=False).path)

    @rule()
    def another_job_starts_or_ends(self) -> None:
        job = self.job
        if job.needed:
            job.needed = set()
            return
        for each in job.pointers.savepoints:
            if not job.machine.is_retiring(each.path):
                job.needed = {each.path}
                break

    @rule(seconds=st.sampled_from([0.0, 5.0, 700.0, 9000.0]))
    def the_leader_is_lost(self, seconds: float) -> None:
        """What it began is not carried out, except a savepoint that is asked for: its request is durable."""
        job = self.job
        job.passes(seconds)
        job.take_over()
        self.open = [effect for effect in self.open if isinstance(effect, MakeSavepoint)]
        self.asked_at = []

    @rule(hours=st.sampled_from([1.0, 48.0, 10_000.0]))
    def the_clock_jumps_ahead(self, hours: float) -> None:
        self.job.ms += round(hours * 3_600_000)

    @rule()
    def the_driver_is_lost(self) -> None:
        self.job.attempt += 1

    @invariant()
    def files_and_records_agree(self) -> None:
        if not hasattr(self, "job"):
            return
        job = self.job
        recorded = {each.path: each for each in job.pointers.savepoints}
        assert job.files - self.asked_for <= recorded.keys(), "files without a record are lost"
        whole = {path for path, each in recorded.items() if not each.retired_ms}
        assert whole <= job.files, "a record that is not marked has its files"
        assert job.needed & recorded.keys() <= job.files, "another job may need it"
        periodic = [each for each in job.pointers.savepoints if each.periodic]
        assert not periodic or not periodic[-1].retired_ms, "the newest stays"
        assert self.asked_for <= job.files, "nobody deletes what a person has asked for"

    def teardown(self) -> None:
        """Once nothing fails any more, only what should be kept is left, and savepoints are made again."""
        if not hasattr(self, "job"):
            return
        job = self.job
        for effect in self.open:
            job.carry_out(effect)
        job.is_free, job.queries, job.needed = True, QUERIES, set()
        made = len(job.made_ms)
        job.works(3600.0, step=20.0)
        assert len(job.made_ms) > made
        periodic = [each for each in job.pointers.savepoints if each.periodic]
        assert len(periodic) <= self.retained + 1


AnyPeriodicJob.TestCase.settings = hypothesis.settings(max_examples=examples(30), stateful_step_count=60, deadline=None)
TestPeriodicSavepoints = AnyPeriodicJob.TestCase
