"""The Dispatcher's jobs: state machines of active ones, views of ended ones. The number of ended ones is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from emberkeep.base.errors import Absent
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.jobmanager.notes.job_notes import JobNotes
from emberkeep.jobmanager.views.briefs import JobBrief, newest_failure
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.jobs import brief_of, view_of_result
from emberkeep.jobmanager.views.procedures import view_of_newest
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.driver_move import Leaving, MoveMachine
from emberkeep.jobs.machine import JobMachine
from emberkeep.jobs.model import ExceptionEntry, JobGraph, JobResult
from emberkeep.jobs.periodic.machine import PeriodicSavepoints
from emberkeep.jobs.state import JobState
from emberkeep.jobs.traces.recovery_trace import RecoveryTrace
from emberkeep.jobs.transitions import Phase
from emberkeep.lifecycle.locations import is_same_place
from emberkeep.lifecycle.requests.machine import RequestMachine
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.watchdog.machine import JobWatch

_LACK_OVER_MS = 5000


@dataclass
class ManagedJob:
    """One job that has a state machine. ``graph`` is None if it could not be read."""

    machine: JobMachine
    graph: JobGraph | None
    order: int
    requests: RequestMachine
    move: MoveMachine
    watch: JobWatch
    periodic: PeriodicSavepoints
    notes: JobNotes
    priority: int = 0
    gang: bool = False
    job_master: str = ""
    task_manager: TaskManagerId | None = None  # where its driver runs, as the JobMaster reports
    report: JobMasterStatus | None = None  # of the current attempt
    waiting_since_ms: int = 0  # since when something is missing for the attempt that runs; 0 if nothing is
    lacked_ms: int = 0  # when something was missing for it last
    noted: tuple[ExceptionEntry, ...] = field(default=())  # exceptions in the newest report
    traced: dict[str, float] = field(default_factory=dict)  # milestones in the newest report
    logged: RecoveryTrace | None = None  # the newest trace whose milestones are in the log
    pointers: JobPointers = field(default=JobPointers())  # as stored
    lacks: str = ""  # names the release that its next attempt needs; "" if this one suffices
    held: str = ""  # what the next attempt waits for, before it is recorded
    result_stored: asyncio.Event = field(default_factory=asyncio.Event)
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # set while no end of a request is being written

    def __post_init__(self) -> None:
        self.settled.set()

    @property
    def job_id(self) -> JobId:
        return self.state.graph.job_id

    @property
    def state(self) -> JobState:
        return self.machine.state

    def view(self) -> JobView:
        """Return the job's view for the edges."""
        state, report, pointers = self.state, self.report, self.pointers
        ended = state.status.is_globally_terminal
        result = state.result if ended else None
        driver, home = state.driver, state.driver_home()
        attempts = state.history.attempts()
        runs = bool(attempts) and attempts[-1].ended_ms is None
        leaving = self.move.leaving(state.attempt)
        return JobView(
            job_id=self.job_id,
            name=state.graph.name,
            status=state.status,
            submitted_ms=state.graph.submitted_ms,
            ended_ms=result.ended_ms if result else None,
            status_times_ms=dict(state.history.status_times_ms),
            attempt=state.known_attempt,
            driver_task_manager=(attempts[-1].task_manager or None) if attempts else None,
            driver_pid=0 if driver is None or ended or not runs else driver.pid,
            exit_code=result.exit_code if result else None,
            root_cause=state.verdict.root_cause if state.verdict else "",
            waiting=self._waiting(leaving) or (report.waiting if report and not ended else ""),
            waiting_since_ms=0 if ended else self.waiting_since_ms,
            attempts=attempts,
            traces=state.history.traces(),
            exceptions=state.history.exceptions(),
            graph=self.graph,
            status_report=report,
            result=result,
            pointers=msgspec.structs.replace(pointers, queries=()) if ended else pointers,
            procedure=None if ended else view_of_newest(self.job_id, self.requests, state.waiting()),
            unreadable=state.phase is Phase.WITHOUT_GRAPH,
            leaving=leaving is not None or state.phase not in (Phase.RUNNING, Phase.WITHOUT_GRAPH),
            last_attempt_over=state.last_attempt_over,
            job_master="" if ended or report is None else self.job_master,
            driver_expected_on=None if home is None else home.task_manager,
            alarms=self.watch.alarms,
            periodic=None if ended else self.periodic.view(),
            priority=self.priority,
            gang=self.gang,
        )

    def brief(self) -> JobBrief:
        """Return ``view()`` in brief, of a job that has not ended."""
        state, graph, report = self.state, self.graph, self.report
        cause = state.verdict.root_cause if state.verdict else ""
        return JobBrief(
            job_id=self.job_id,
            name=state.graph.name,
            status=state.status,
            submitted_ms=state.graph.submitted_ms,
            ended_ms=None,
            entered_ms=state.history.status_times_ms.get(state.status, state.graph.submitted_ms),
            owner=graph.owner if graph else "",
            namespace=graph.namespace if graph else "",
            has_known_owner=graph is not None,
            alarms=self.watch.alarms,
            waiting=self._waiting(self.move.leaving(state.attempt)) or (report.waiting if report else ""),
            waiting_since_ms=self.waiting_since_ms,
            unreadable=state.phase is Phase.WITHOUT_GRAPH,
            failure=cause or newest_failure(state.history.attempts())[1],
            has_savepoints=bool((graph and graph.savepoint) or self.pointers.savepoints),
        )

    def _waiting(self, leaving: Leaving | None) -> str:
        """Return a text that names what the job waits for, as far as the JobManager knows; "" if for nothing."""
        waiting = self.held or self.state.waiting()
        if waiting or leaving is None or not leaving.obstacle:
            return waiting
        return f"its driver to leave its node, which was not possible so far: {leaving.obstacle}"

    def note_lack(self, *, is_lacking: bool, now_ms: int) -> None:
        """Note whether something is missing for the attempt that runs.

        While slots are about to be matched, what is missing is unknown: so a lack ends only if it stays away.
        """
        if is_lacking:
            self.waiting_since_ms, self.lacked_ms = self.waiting_since_ms or now_ms, now_ms
        elif now_ms - self.lacked_ms > _LACK_OVER_MS:
            self.waiting_since_ms = 0

    def take(self, report: JobMasterStatus) -> bool:
        """Take over a JobMaster's report. Return False if the report is not newer than the last one."""
        if self.report is not None and report.sequence <= self.report.sequence:
            return False
        self.report = report
        return True


class JobTable:
    """Jobs by id.

    An ended job's state machine stays until the job's driver is gone, or the time allowed for the driver's end has
    passed. The job's view stays longer.
    """

    def __init__(self, keep: int) -> None:
        self.active: dict[JobId, ManagedJob] = {}
        self._ended: dict[JobId, JobView] = {}
        self._lingering: set[JobId] = set()  # ended, but their machines are still active
        self._keep = keep
        self._orders = 0

    def next_order(self) -> int:
        self._orders += 1
        return self._orders

    def running(self) -> int:
        """Return the number of jobs that have not ended."""
        return len(self.active) - len(self._lingering)

    def running_in(self, namespace: str) -> int:
        """Return the number of jobs of one namespace that have not ended, without those whose graph is unreadable."""
        return sum(
            job.graph is not None and job.graph.namespace == namespace and job_id not in self._lingering
            for job_id, job in self.active.items()
        )

    def is_running(self, job_id: JobId) -> bool:
        """True if the job has not ended."""
        return job_id in self.active and job_id not in self._lingering

    def remove(self, job_id: JobId) -> None:
        """Drop an ended job's state machine."""
        del self.active[job_id]
        self._lingering.discard(job_id)

    def load(self, results: Iterable[JobResult]) -> None:
        for result in results:
            self._ended[result.job_id] = view_of_result(result)

    def ended(self, job: ManagedJob) -> bool:
        """Keep the view of a job that has just ended. Return True if older views were dropped to make room."""
        self._ended[job.job_id] = job.view()
        self._lingering.add(job.job_id)
        surplus = len(self._ended) - self._keep
        for job_id in list(self._ended)[: max(0, surplus)]:
            del self._ended[job_id]
        return surplus > 0

    def has_ended(self, job_id: JobId, attempt: int) -> bool:
        """True if the job has ended with this attempt."""
        view = self._ended.get(job_id)
        return view is not None and view.attempt == attempt

    def key_of(self, job_id: JobId) -> str | None:
        """Return the idempotency key of an active or ended job; None if the job is unknown."""
        job = self.active.get(job_id)
        if job is not None:
            return job.machine.state.graph.idempotency_key
        ended = self._ended.get(job_id)
        return ended.result.idempotency_key if ended is not None and ended.result is not None else None

    def has_key(self, idempotency_key: str) -> bool:
        """True if an active or ended job was submitted with this key."""
        return any(self.key_of(job_id) == idempotency_key for job_id in (*self.active, *self._ended))

    def is_retiring(self, path: str) -> bool:
        """True if the savepoint at ``path`` is being deleted by retention, or some of its files may be gone."""
        return any(job.periodic.is_retiring(path) for job in self.active.values()) or any(
            each.retired_ms and is_same_place(each.path, path)
            for view in self._ended.values()
            for each in view.pointers.savepoints
        )

    def is_known(self, job_id: JobId) -> bool:
        return job_id in self._ended or self.is_running(job_id)

    def view(self, job_id: JobId) -> JobView:
        """Return one job. Raises Absent."""
        ended = self._ended.get(job_id)
        if ended is not None:
            return ended
        job = self.active.get(job_id)
        if job is None or job_id in self._lingering:
            raise Absent(f"there is no job {job_id}", hint="`emberkeep list` shows all jobs; old results expire")
        return job.view()

    def views(self) -> list[JobView]:
        """Return all jobs, newest submission first."""
        return sorted([*(job.view() for job in self._unfinished()), *self._ended.values()], key=_newest_first)

    def briefs(self) -> list[JobBrief]:
        """Return all jobs in brief, newest submission first."""
        found = [*(job.brief() for job in self._unfinished()), *map(brief_of, self._ended.values())]
        return sorted(found, key=_newest_first)

    def _unfinished(self) -> list[ManagedJob]:
        return [job for job_id, job in self.active.items() if job_id not in self._lingering]


def _newest_first(job: JobView | JobBrief) -> tuple[int, JobId]:
    return -job.submitted_ms, job.job_id
