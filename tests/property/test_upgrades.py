"""What holds for an upgrade whatever happens: one version runs, from one savepoint, and the upgrade ends."""

from __future__ import annotations

import contextlib

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberkeep.base.errors import Conflict
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import Effect, StopFacts, StopState, SubmitJob, UpgradePhase, WriteUpgrade
from tests.campaign import examples
from tests.unit.jobs.upgrades.upgraded_job import BACK, NEW, OLD, SAVEPOINT, UpgradedJob, query

_ALIVE = (JobStatus.CREATED, JobStatus.RUNNING, JobStatus.RESTARTING, JobStatus.CANCELLING)


class AnyUpgrade(RuleBasedStateMachine):
    """Leaders come and go between decision and effect; jobs stop, fail, end, are cancelled and commit batches."""

    def __init__(self) -> None:
        super().__init__()
        self.job = UpgradedJob()
        self.open: list[Effect] = []  # decided, and not carried out yet
        self.savepoint = ""

    def alive(self) -> list[str]:
        return [job_id for job_id, facts in self.job.jobs.items() if not facts.is_over]

    @rule(seconds=st.sampled_from([0.5, 30.0, 700.0]))
    def look(self, seconds: float) -> None:
        effects = self.job.look(seconds)
        for effect in effects:
            if isinstance(effect, SubmitJob):
                assert effect.graph.savepoint == SAVEPOINT
                others = [job_id for job_id in self.alive() if job_id != effect.graph.job_id]
                assert not others, f"{effect.graph.job_id} is submitted while {others} may run"
            if isinstance(effect, WriteUpgrade):
                assert not any(isinstance(each, WriteUpgrade) for each in self.open), "two writes at a time"
        self.open += effects

    @rule(is_done=st.booleans())
    def carry_out(self, is_done: bool) -> None:
        if not self.open:
            return
        effect = self.open.pop(0)
        if is_done or isinstance(effect, WriteUpgrade):
            self.job.carry_out(effect)
        elif isinstance(effect, SubmitJob):
            self.job.machine.submitted()  # the store did not answer: nothing was accepted
        else:
            self.job.machine.cancel_recorded()

    @rule(is_written=st.booleans())
    def the_leader_is_lost(self, is_written: bool) -> None:
        """What it began reaches the store, or does not."""
        for effect in self.open if is_written else []:
            self.job.carry_out(effect)
        self.open = []
        self.job.take_over()

    @precondition(lambda self: self.job.stop.state is StopState.OPEN)
    @rule(fails=st.booleans())
    def the_stop_ends(self, fails: bool) -> None:
        if self.job.jobs[OLD].has_ended:
            return
        made = StopFacts(state=StopState.MADE, savepoint=SAVEPOINT)
        self.job.stop = StopFacts(state=StopState.FAILED, failure="no space") if fails else made

    @rule(
        job_id=st.sampled_from([OLD, NEW, BACK]),
        status=st.sampled_from([JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED]),
        is_over=st.booleans(),
    )
    def a_job_ends(self, job_id: str, status: JobStatus, is_over: bool) -> None:
        facts = next((each for key, each in self.job.jobs.items() if key == job_id), None)
        if facts is None:
            return
        status = facts.status if facts.has_ended and facts.status is not None else status
        is_over = is_over or facts.is_over
        self.job.change(OLD if job_id == OLD else NEW if job_id == NEW else BACK, status=status, is_over=is_over)

    @precondition(lambda self: NEW in self.job.jobs and not self.job.jobs[NEW].has_ended)
    @rule(batch=st.integers(5, 12), attempt=st.integers(1, 5), waits=st.booleans())
    def the_new_job_runs(self, batch: int, attempt: int, waits: bool) -> None:
        if self.job.jobs[NEW].status is not JobStatus.CANCELLING:
            self.job.runs(query(batch, waits=waits), attempt=attempt)

    @rule()
    def a_person_cancels(self) -> None:
        with contextlib.suppress(Conflict):
            self.job.machine.cancel("ana")

    @invariant()
    def the_savepoint_is_kept(self) -> None:
        assert self.job.stored.savepoint in ("", SAVEPOINT)
        assert self.job.stored.savepoint or not self.savepoint, "it is forgotten"
        self.savepoint = self.job.stored.savepoint
        self.job.machine.check_invariants()

    @invariant()
    def the_end_says_what_runs(self) -> None:
        job = self.job
        if job.phase is UpgradePhase.UNCHANGED:
            assert not job.accepted
        if job.phase is UpgradePhase.RETURNED:
            assert job.accepted[-1].job_id == BACK
        if job.phase is UpgradePhase.DONE:
            assert [each.job_id for each in job.accepted] == [NEW]

    def teardown(self) -> None:
        """From here on nothing fails: the upgrade ends."""
        job = self.job
        self.the_leader_is_lost(is_written=False)
        for _ in range(40):
            if job.phase.is_final:
                return
            job.step(400.0)
            if job.stop.state is StopState.OPEN:
                job.stop = StopFacts(state=StopState.MADE, savepoint=SAVEPOINT)
            if job.stop.state is StopState.MADE and not job.jobs[OLD].is_over:
                job.change(OLD, status=job.jobs[OLD].status if job.jobs[OLD].has_ended else JobStatus.FINISHED)
                job.change(OLD, is_over=True)
            for job_id in (NEW, BACK):
                facts = job.jobs.get(job_id)
                if facts is not None and (facts.has_ended or facts.status is JobStatus.CANCELLING):
                    job.change(job_id, is_over=True, status=facts.status if facts.has_ended else JobStatus.CANCELED)
        raise AssertionError(f"it does not end: {job.phase}")


TestUpgrades = AnyUpgrade.TestCase
TestUpgrades.settings = hypothesis.settings(max_examples=examples(75), stateful_step_count=40, deadline=None)
