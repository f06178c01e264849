"""Tests of the tests: bugs that are planted in the actors must be caught, each within a number of seeds.

A planted bug that no seed finds means that the simulation has become blind there.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from emberkeep.blobs.server_machine import ServerMachine
from emberkeep.blocklist.model import Blocklist
from emberkeep.jobmanager.jobs.checkpoint_records import CheckpointRecords
from emberkeep.jobmanager.jobs.driver_moves import DriverMoves
from emberkeep.jobmanager.jobs.job_master_reports import JobMasterReports
from emberkeep.jobmanager.jobs.job_records import JobRecords
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmaster.job_master import JobMaster
from emberkeep.jobs import events as ev
from emberkeep.jobs.attempts.end import AttemptEnd
from emberkeep.jobs.attempts.newest import NewestAttempt
from emberkeep.jobs.driver import Driver
from emberkeep.jobs.machine import JobMachine
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobResult
from emberkeep.jobs.state import JobState
from emberkeep.jobs.traces.moment import Moment
from emberkeep.jobs.transitions import Phase
from emberkeep.lifecycle.requests.machine import RequestMachine
from emberkeep.slots.job_accounts import JobAccounts
from emberkeep.slots.pool.offers import Offers
from emberkeep.slots.pool.replacements import Replacements
from emberkeep.slots.pool.silence import Silence
from emberkeep.slots.pool.state import PoolState
from emberkeep.slots.restrictions import Restrictions
from emberkeep.slots.table.attempts import Attempts
from emberkeep.slots.table.fences import Fences
from emberkeep.slots.table.machine import SlotTable
from emberkeep.slots.table.slot_release import SlotRelease
from tests.simulation.planted_worlds import asked_to_stop, unrecorded_ends
from tests.simulation.plants import Plant, answering, check, returning
from tests.support.fakes import MemoryJobStore


def no_lease(original: Callable[..., Any]) -> Callable[..., Any]:
    def gone_at(self: Driver, policy: Any, hears_since: float | None) -> float | None:
        if not self.reachable:
            return self.lost_at or self.since
        value: float | None = original(self, policy, hears_since)
        return value

    return gone_at


def claims_only(original: Callable[..., Any]) -> Callable[..., Any]:
    def submit(self: ServerMachine, owner: Any, keys: Any, *more: Any) -> Any:
        return original(self, owner, (), *more)

    return submit


def restart_at_recovery(original: Callable[..., Any]) -> Callable[..., Any]:
    def begin(self: JobMachine, event: ev.Begin, now: Moment) -> None:
        original(self, event, now)
        if self.state.driver is not None:
            self._newest.request_place(now)

    return begin


def count_everything_as_success(original: Callable[..., Any]) -> Callable[..., Any]:
    def ended(self: AttemptEnd, outcome: AttemptOutcome, now: Moment) -> None:
        succeeded = outcome if outcome.kind is not FailureKind.SCRIPT else AttemptOutcome(exit_code=0)
        original(self, succeeded, now)

    return ended


def show_before_it_is_durable(_: Callable[..., Any]) -> Callable[..., Any]:
    async def record_result(self: JobRecords, _: object, result: JobResult) -> None:
        self._owner.tell(lambda: self._machines.apply(result.job_id, ev.ResultRecorded()))
        await self._writes.record_result(result)

    return record_result


def forget_to_write(_: Callable[..., Any]) -> Callable[..., Any]:
    async def record_attempt(*__: Any) -> bool:
        return True

    return record_attempt


def free_before_the_process_has_ended(_: Callable[..., Any]) -> Callable[..., Any]:
    def release(self: SlotRelease, slot: Any, **_how: bool) -> list[Any]:
        effects = [] if slot.executor_id is None else [self.end_executor(slot)]
        del self._table.slots[slot.id]
        return effects

    return release


def never_free(_: Callable[..., Any]) -> Callable[..., Any]:
    def release(self: SlotRelease, slot: Any, **_how: bool) -> list[Any]:
        return []

    return release


def without_replacement(original: Callable[..., Any]) -> Callable[..., Any]:
    def executor_ended(self: Replacements, now: float, *, failure: bool) -> None:
        original(self, now, failure=failure)
        self.pauses.append(float("inf"))

    return executor_ended


def without_strays(_: Callable[..., Any]) -> Callable[..., Any]:
    def to_beat(self: PoolState) -> list[Any]:
        infos = (view.info for view in self.lives.views.values())
        return [(info, self.on_task_manager(info.instance)) for info in infos]

    return to_beat


def without_asking_spark(_: Callable[..., Any]) -> Callable[..., Any]:
    def review(self: Silence, now: float) -> list[Any]:
        away = [slot for slot in self._pool.held.values() if self._pool.is_away(slot, now)]
        return [effect for slot in away for effect in self._slot_end.abandon(slot, "its task manager is silent")]

    return review


def start_anew_always(original: Callable[..., Any]) -> Callable[..., Any]:
    def bind_again(self: Offers, slot: Any, info: Any, found: Any, now: float) -> list[Any]:
        effects: list[Any] = original(self, slot, info, None, now)
        return effects

    return bind_again


def everything_is_lost(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_: False


def older_outcome_accepted(_: Callable[..., Any]) -> Callable[..., Any]:
    def report_outcome(self: JobMasterReports, request: Any) -> Any:
        job = self._active.get(request.job_id)
        if job is None:
            return None
        self._machines.apply(job.job_id, ev.OutcomeReported(job.state.attempt, request.outcome))
        return job.result_stored if job.state.phase is Phase.RECORDING_RESULT else None

    return report_outcome


def forget_what_is_over(original: Callable[..., Any]) -> Callable[..., Any]:
    def attempts_over(self: Attempts, event: Any, now: float) -> list[Any]:
        drivers = self._table.drivers
        for job_id, attempt in list(drivers.by_attempt):
            if job_id == event.job_id and attempt <= event.attempt:
                drivers.acknowledge(job_id, attempt)
        effects: list[Any] = original(self, event, now)
        return effects

    return attempts_over


def acknowledge_at_once(_: Callable[..., Any]) -> Callable[..., Any]:
    async def report_outcome(self: JobMasterReports, request: Any) -> None:
        await self._owner.ask(lambda: self._report_outcome(request))

    return report_outcome


def note_the_running_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    def note(self: CheckpointRecords, job_id: Any, attempt: int, queries: Any) -> None:
        running = (msgspec.structs.replace(query, batch_id=query.batch_id + 1) for query in queries)
        original(self, job_id, attempt, tuple(running))

    return note


def tell_of_a_stop_before_it_is_durable(original: Callable[..., Any]) -> Callable[..., Any]:
    def begin_end(self: RequestMachine, current: Any, progress: Any, attempt: int) -> list[Any]:
        self.recorded = current.trigger_id
        effects: list[Any] = original(self, current, progress, attempt)
        return effects

    return begin_end


def without_the_stop(original: Callable[..., Any]) -> Callable[..., Any]:
    async def record_procedure_end(self: MemoryJobStore, *what: Any, stopped: bool) -> Any:
        del stopped
        return await original(self, *what, stopped=False)

    return record_procedure_end


def without_blocklist(_: Callable[..., Any]) -> Callable[..., Any]:
    async def blocklist(_: MemoryJobStore) -> Blocklist:
        return Blocklist()

    return blocklist


PLANTS = {
    "a new attempt does not wait for the lease": Plant(Driver, "gone_at", no_lease, ("d",), "split"),
    "a recovered job is restarted at once": Plant(
        JobMachine, "_begin", restart_at_recovery, ("d", "g", "bug"), "crash"
    ),
    "the JobManager refuses no attempt": Plant(JobState, "refusal", returning(""), ("d", "c", "a"), "split"),
    "an older attempt's outcome is taken for the newest one's": Plant(
        JobMasterReports, "_report_outcome", older_outcome_accepted, ("e",), "late"
    ),
    "a superseded attempt does not end itself": Plant(
        JobMaster, "take_refusal", answering(None), ("d", "c"), "abandoned"
    ),
    "task managers refuse no attempt that is over": Plant(
        Fences, "check", returning(None), ("g", "b", "c", "d", "bug"), "repeats"
    ),
    "every script counts as successful": Plant(AttemptEnd, "ended", count_everything_as_success, ("e",), "calm"),
    "an end is shown before it is durable": Plant(
        JobRecords, "_record_result", show_before_it_is_durable, ("e", "h", "m"), "crowd"
    ),
    "attempt numbers are not written": Plant(StoreWrites, "record_attempt", forget_to_write, ("g",), "calm"),
    "slots are never freed": Plant(SlotRelease, "release", never_free, ("a", "f", "c"), "calm"),
    "slots are freed before their executor has ended": Plant(
        SlotRelease, "release", free_before_the_process_has_ended, ("b",), "calm"
    ),
    "lost executors are not replaced": Plant(Replacements, "executor_ended", without_replacement, ("a",), "crash"),
    "a task manager that comes back is not told what it may free": Plant(
        PoolState, "to_beat", without_strays, ("a", "c"), "split"
    ),
    "the executors of a silent task manager count as lost": Plant(
        Silence, "review", without_asking_spark, ("p",), "agents"
    ),
    "a restarted task manager is taken to have lost its executors": Plant(
        Offers, "bind_again", start_anew_always, ("p", "b"), "agents"
    ),
    "a silent task manager is lost at once": Plant(JobAccounts, "use", everything_is_lost, ("p",), "agents"),
    "nobody tells a task manager which attempts are over": Plant(
        JobAccounts, "is_void", returning(False), ("c", "f"), "split"
    ),
    "nobody counts attempts that the job store does not know": Plant(
        NewestAttempt, "attempt_seen", returning(None), ("g",), "older"
    ),
    "a job does not hold its files": Plant(ServerMachine, "submit", claims_only, ("h",), "calm"),
    "what a job leaves is not deleted": Plant(ServerMachine, "end", returning(None), ("h",), "calm"),
    "blocked nodes are not told to the slot manager": Plant(Restrictions, "block", returning(None), ("i",), "block"),
    "a block takes no driver place back": Plant(DriverMoves, "block", answering(None), ("i", "a"), "block"),
    "a new JobManager does not read the blocklist": Plant(
        MemoryJobStore, "blocklist", without_blocklist, ("i",), "block"
    ),
    "a task manager forgets the end of a driver whose attempt is over": Plant(
        Attempts, "attempts_over", forget_what_is_over, ("m",), unrecorded_ends
    ),
    "the end of a script is acknowledged before it is stored": Plant(
        JobMasterReports, "report_outcome", acknowledge_at_once, ("m",), "storeless"
    ),
    "a script is told of its stop before that is durable": Plant(
        RequestMachine, "_begin_end", tell_of_a_stop_before_it_is_durable, ("l",), asked_to_stop
    ),
    "that a savepoint has stopped its job is not written": Plant(
        MemoryJobStore, "record_procedure_end", without_the_stop, ("l",), asked_to_stop
    ),
    "the batch that runs is recorded as committed": Plant(
        CheckpointRecords, "note", note_the_running_batch, ("k",), "abandoned"
    ),
    "a task manager does not notice silence": Plant(SlotTable, "_tick", returning([]), ("c",), "cut"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(name, PLANTS[name], monkeypatch)
