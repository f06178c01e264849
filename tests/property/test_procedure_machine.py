"""The order of calls at the end of a job, with a failure at every step (END-3, END-6)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.lifecycle.machine import (
    PLANS,
    TRIES,
    Effect,
    Noted,
    ProcedureMachine,
    Recorded,
    Requested,
    Run,
    Step,
    StepDone,
    StepFailed,
)
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureRequest

TRIGGER = "f" * 32
_DURABLE = (Step.KEEP_STATE, Step.WRITE_SAVEPOINT)
CALLS = {
    Step.PREPARE_TO_SHUTDOWN: "prepare_to_shutdown",
    Step.SNAPSHOT_STATE: "snapshot_state",
    Step.NOTIFY_COMPLETE: "notify_checkpoint_complete",
    Step.SHUTDOWN: "shutdown",
    Step.DRAIN: "MAX_WATERMARK",
}
# The table of END-3, word by word; close follows at the end of every driver.
TABLE = {
    "DRAIN": "MAX_WATERMARK · prepare_to_shutdown · snapshot_state · notify_checkpoint_complete · shutdown",
    "SUSPEND": "snapshot_state · notify_checkpoint_complete",
}


class Driver:
    """Carries steps out as a driver would; ``failing``: numbers of the steps, in order, that fail; ``hanging``: that
    fail as they do not end."""

    def __init__(self, procedure: Procedure, failing: Iterable[int] = (), hanging: Iterable[int] = ()) -> None:
        self.request = ProcedureRequest(trigger_id=TRIGGER, procedure=procedure, target_directory="file:///s")
        self.machine = ProcedureMachine()
        self.trace: list[tuple[Step, bool]] = []  # with whether it succeeded
        self._hanging = set(hanging)
        self._failing = set(failing) | self._hanging
        self._now = 0

    def run(self) -> None:
        self._carry_out(self._tell(Requested(self.request)))

    def record(self) -> None:
        self._carry_out(self._tell(Recorded(TRIGGER)))

    def _tell(self, event: Requested | Recorded | StepDone | StepFailed | Noted) -> list[Effect]:
        self._now += 1
        effects = self.machine.handle(event, self._now)
        # Everything may be told twice, and of a step that is over at any time.
        assert self.machine.handle(Requested(self.request), self._now) == []
        assert self.machine.handle(StepDone(TRIGGER, Step.LEAVE), self._now) == []
        assert self.machine.handle(StepDone("0" * 32, Step.SHUTDOWN), self._now) == []
        return effects

    def _carry_out(self, effects: list[Effect]) -> None:
        ahead = [effect for effect in effects if isinstance(effect, Run)]
        while ahead:
            assert len(ahead) == 1, "one step at a time"
            step = ahead[0].step
            fails = len(self.trace) in self._failing
            hangs = len(self.trace) in self._hanging
            self.trace.append((step, not fails))
            failed = StepFailed(TRIGGER, step, f"{step.value} broke", hangs=hangs)
            event = failed if fails else StepDone(TRIGGER, step, "p", "m", f"{step.value} warns")
            ahead = [effect for effect in self._tell(event) if isinstance(effect, Run)]

    @property
    def steps(self) -> list[Step]:
        return [step for step, _ in self.trace]

    @property
    def phase(self) -> ProcedurePhase:
        assert self.machine.progress is not None
        return self.machine.progress.phase


def words(steps: Iterable[Step]) -> str:
    return " · ".join(CALLS[step] for step in steps if step in CALLS)


@pytest.mark.req("END-3")
@pytest.mark.parametrize("end", ["DRAIN", "SUSPEND"])
def test_calls_come_in_the_order_of_the_table(end: str) -> None:
    driver = Driver(Procedure[end])

    driver.run()
    assert driver.phase is ProcedurePhase.COMPLETED
    driver.record()

    assert driver.steps[-1] is Step.END_SCRIPT_WAIT, "the script goes on only when the end is recorded"
    assert words(driver.steps) == TABLE[end]


def test_a_savepoint_leaves_the_job_as_it_was() -> None:
    driver = Driver(Procedure.SAVEPOINT)

    driver.run()
    driver.record()

    assert words(driver.steps) == "snapshot_state · notify_checkpoint_complete"
    assert Step.FINISH_BATCHES not in driver.steps
    progress = driver.machine.progress
    assert progress is not None
    assert (progress.phase, progress.savepoint, progress.manifest_sha256) == (ProcedurePhase.COMPLETED, "p", "m")


@pytest.mark.req("SAFE-19")
def test_a_move_keeps_what_functions_have_and_leaves_once_it_is_recorded() -> None:
    driver = Driver(Procedure.MOVE)
    keeping = [Step.FINISH_BATCHES, Step.SNAPSHOT_STATE, Step.KEEP_STATE, Step.NOTIFY_COMPLETE]

    driver.run()
    assert driver.steps == keeping
    driver.record()

    assert driver.steps == [*keeping, Step.LEAVE]


@pytest.mark.req("SAFE-24")
@pytest.mark.parametrize("procedure", [each for each in Procedure if each.makes_savepoint])
def test_no_savepoint_is_written_of_functions_whose_state_is_not_kept(procedure: Procedure) -> None:
    driver = Driver(procedure, failing=[PLANS[procedure].index(Step.KEEP_STATE)])

    driver.run()

    assert driver.phase is ProcedurePhase.FAILED
    assert not {Step.WRITE_SAVEPOINT, Step.NOTIFY_COMPLETE} & set(driver.steps)


@pytest.mark.req("SAFE-19")
@pytest.mark.parametrize("failing", [Step.SNAPSHOT_STATE, Step.KEEP_STATE])
def test_a_driver_whose_functions_state_is_not_kept_does_not_leave(failing: Step) -> None:
    driver = Driver(Procedure.MOVE, failing=[PLANS[Procedure.MOVE].index(failing)])

    driver.run()
    driver.record()

    assert driver.phase is ProcedurePhase.FAILED
    assert driver.steps[-1] is Step.START_QUERIES, "the job goes on where it is"
    assert Step.LEAVE not in driver.steps


def test_a_move_that_an_earlier_attempt_has_made_is_over_at_once() -> None:
    driver = Driver(Procedure.MOVE)

    effects = driver.machine.handle(Requested(driver.request, fulfilled=True), 1)

    assert not [effect for effect in effects if isinstance(effect, Run)]
    assert driver.phase is ProcedurePhase.COMPLETED
    assert driver.machine.handle(Recorded(TRIGGER), 2) == []


@pytest.mark.req("END-6")
@given(
    procedure=st.sampled_from(Procedure),
    failing=st.sets(st.integers(0, 16), max_size=6),
    hanging=st.sets(st.integers(0, 16), max_size=2),
)
def test_whatever_fails(procedure: Procedure, failing: set[int], hanging: set[int]) -> None:
    driver = Driver(procedure, failing, hanging)
    driver.run()
    _check_forward(driver)
    if driver.phase is ProcedurePhase.FAILED:
        _check_way_back(driver)
    before = list(driver.trace)
    driver.record()
    if driver.phase is ProcedurePhase.FAILED:
        assert driver.trace == before, "the script sees nothing of a procedure that has failed"


def _check_forward(driver: Driver) -> None:
    assert driver.phase.is_final
    succeeded = [step for step, good in driver.trace if good]
    steps = driver.steps
    if Step.SHUTDOWN in steps:
        early = steps[: steps.index(Step.SHUTDOWN)]
        assert Step.NOTIFY_COMPLETE in succeeded, "END-6: no shutdown without a complete savepoint"
        assert all(good for step, good in driver.trace[: len(early)] if step is not Step.NOTIFY_COMPLETE)
        assert driver.phase is ProcedurePhase.COMPLETED
    durable = [step for step in PLANS[driver.request.procedure] if step in _DURABLE]
    for earlier, later in itertools.pairwise([Step.SNAPSHOT_STATE, *durable, Step.NOTIFY_COMPLETE]):
        if later in steps:
            assert (earlier, True) in driver.trace[: steps.index(later)]
    for step in (Step.NOTIFY_COMPLETE, Step.SHUTDOWN):
        assert steps.count(step) <= TRIES


@pytest.mark.req("END-6")
@pytest.mark.parametrize("procedure", [each for each in Procedure if each.makes_savepoint])
def test_where_no_savepoint_could_be_made_nothing_has_been_touched(procedure: Procedure) -> None:
    driver = Driver(procedure, failing=[0])

    driver.run()

    assert driver.phase is ProcedurePhase.FAILED
    # An attempt that carries a stop on has queries that its script has started ended.
    assert driver.steps == [Step.CHECK, *([Step.START_QUERIES] if procedure.ends_attempt else [])]


def _check_way_back(driver: Driver) -> None:
    steps, progress = driver.steps, driver.machine.progress
    assert progress is not None
    assert "broke" in progress.failure
    assert not progress.savepoint
    if driver.request.procedure.ends_attempt:
        last, good = driver.trace[-1]
        assert last is (Step.START_QUERIES if good else Step.FAIL_ATTEMPT) or last is Step.FAIL_ATTEMPT
    if Step.PAUSE in steps:
        assert (Step.RESUME, True) in driver.trace or steps[-1] is Step.FAIL_ATTEMPT, "no query stands for ever"
    _check_batches_are_released(driver)
    if Step.WRITE_SAVEPOINT in steps:
        assert Step.DISCARD_SAVEPOINT in steps


def _check_batches_are_released(driver: Driver) -> None:
    """What a savepoint copies is kept from before the queries go on until the copy is done, and no longer."""
    steps = driver.steps
    if Step.RETAIN_BATCHES not in steps:
        assert Step.WRITE_SAVEPOINT not in steps or driver.request.procedure.ends_attempt
        return
    if Step.WRITE_SAVEPOINT in steps:
        assert steps.index(Step.RETAIN_BATCHES) < steps.index(Step.RESUME) < steps.index(Step.WRITE_SAVEPOINT)
    if steps[-1] is not Step.FAIL_ATTEMPT:  # which releases everything
        last = max(number for number, step in enumerate(steps) if step in (Step.RETAIN_BATCHES, Step.WRITE_SAVEPOINT))
        assert (Step.RELEASE_BATCHES, True) in driver.trace[last + 1 :]


@pytest.mark.req("SAFE-18")
@given(failing=st.sets(st.integers(0, 12), max_size=4), hanging=st.sets(st.integers(0, 12), max_size=2))
def test_batches_that_a_savepoint_copies_are_released_whatever_fails(failing: set[int], hanging: set[int]) -> None:
    driver = Driver(Procedure.SAVEPOINT, failing, hanging)
    driver.run()
    _check_batches_are_released(driver)


def test_another_request_waits_for_the_end_of_the_first_and_comes_after_a_failure() -> None:
    machine = ProcedureMachine()
    first = ProcedureRequest(trigger_id="1" * 32, procedure=Procedure.SUSPEND, target_directory="t")
    second = ProcedureRequest(trigger_id="2" * 32, procedure=Procedure.SAVEPOINT, target_directory="t")
    machine.handle(Requested(first), 1)

    assert machine.handle(Requested(second), 2) == []
    machine.handle(StepFailed(first.trigger_id, Step.CHECK, "no"), 3)
    machine.handle(StepDone(first.trigger_id, Step.START_QUERIES), 4)
    effects = machine.handle(Requested(second), 5)

    assert [effect.step for effect in effects if isinstance(effect, Run)] == [Step.CHECK]


def shown(machine: ProcedureMachine) -> tuple[object, ...] | None:
    told = machine.progress
    if told is None:
        return None
    return (told.detail, told.files_done, told.files_total, told.bytes_done, told.bytes_total)


def test_progress_is_told_in_words_and_numbers() -> None:
    driver = Driver(Procedure.SAVEPOINT)
    machine = driver.machine
    machine.handle(Requested(driver.request), 1)

    machine.handle(Noted(TRIGGER, "copying 3 files", files_done=1, files_total=3, bytes_done=10, bytes_total=30), 2)
    assert shown(machine) == ("copying 3 files", 1, 3, 10, 30)
    machine.handle(Noted(TRIGGER, "starting the queries"), 3)
    assert shown(machine) == ("starting the queries", 0, 0, 0, 0)


@pytest.mark.req("END-6")
@pytest.mark.parametrize("number", range(4))
def test_a_step_that_hangs_is_undone_unless_it_may_still_plan_a_batch(number: int) -> None:
    driver = Driver(Procedure.DRAIN, hanging=[number])

    driver.run()

    assert driver.phase is ProcedurePhase.FAILED
    hanging = driver.steps[number]
    with_queries = hanging in (Step.FINISH_BATCHES, Step.DRAIN)
    assert driver.steps[number + 1 :] == [Step.FAIL_ATTEMPT if with_queries else Step.START_QUERIES]


def test_what_is_to_be_known_beside_success_is_kept_and_nothing_of_it_after_a_failure() -> None:
    driver = Driver(Procedure.SAVEPOINT)
    driver.run()
    progress = driver.machine.progress
    assert progress is not None
    assert progress.warning.split("; ") == [f"{step.value} warns" for step in driver.steps]

    failed = Driver(Procedure.DRAIN, failing=[4])
    failed.run()
    assert failed.machine.progress is not None
    assert (failed.phase, failed.machine.progress.warning) == (ProcedurePhase.FAILED, "")


def test_a_function_that_does_not_shut_down_is_told_with_the_savepoint() -> None:
    number = len(PLANS[Procedure.DRAIN]) - 1
    driver = Driver(Procedure.DRAIN, failing=range(number, number + TRIES))
    driver.run()
    progress = driver.machine.progress
    assert progress is not None
    assert progress.phase is ProcedurePhase.COMPLETED
    assert "a function did not shut down: SHUTDOWN broke" in progress.warning
