"""The Dispatcher owns the jobs: it feeds their machines with events and carries out the machines' effects."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial

from emberkeep.base.actors import INBOX_LIMIT, Actor, asked, told
from emberkeep.base.configuration import options
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.base.ids import InstanceId, JobId, TaskManagerId
from emberkeep.base.system import System
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.jobmanager.alarms import Alarms
from emberkeep.jobmanager.answers import Answers
from emberkeep.jobmanager.authority import Authority
from emberkeep.jobmanager.bounded_calls import BoundedCalls
from emberkeep.jobmanager.jobs.admission import (
    artefact_contents,
    artefact_keys,
    check_graph,
    driver_need,
    job_configuration,
    unreadable_graph,
    usable_configuration,
)
from emberkeep.jobmanager.jobs.attempt_hold import AttemptHold
from emberkeep.jobmanager.jobs.checkpoint_records import CheckpointRecords
from emberkeep.jobmanager.jobs.driver_moves import DriverMoves, Move
from emberkeep.jobmanager.jobs.job_table import JobTable, ManagedJob
from emberkeep.jobmanager.jobs.procedures import Procedures
from emberkeep.jobmanager.jobs.unread_jobs import UnreadJobs
from emberkeep.jobmanager.resources.resource_manager import MESSAGES_PER_JOB, ResourceManager
from emberkeep.jobmanager.steady_clock import SteadyClock
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.cluster import JobView, Submission
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs import events as ev
from emberkeep.jobs.checkpoints import JobPointers, merged
from emberkeep.jobs.hearing import Hearing
from emberkeep.jobs.machine import JobMachine
from emberkeep.jobs.model import AttemptOutcome, DriverHome, FailureKind, JobGraph, JobResult, JobStatus
from emberkeep.jobs.policy import job_policy
from emberkeep.jobs.ports import JobStore, StoredJob, Trouble
from emberkeep.jobs.restart import restart_strategy
from emberkeep.jobs.state import JobState
from emberkeep.jobs.transitions import Phase
from emberkeep.lifecycle.model import Procedure, ProcedureProgress, ProcedureRequest
from emberkeep.protocol.messages import (
    Ack,
    AttemptKey,
    DriverReport,
    JobMasterHeartbeat,
    JobMasterStatus,
    ProcessState,
    RegisterJobMaster,
    ReportOutcome,
    StartDriver,
    StopDriver,
)
from emberkeep.protocol.transport import RpcClient
from emberkeep.slots.model import TaskManagerInfo

CALLS_AT_ONCE = 32
_ANOTHER_FOLLOWS = frozenset({Phase.BACKING_OFF, Phase.PLACING, Phase.RECORDING_ATTEMPT})  # the attempt has ended
END_PATIENCE = 1.0  # seconds that a reply to a driver waits until the end of a request or job is recorded

_NOT_RUNNING = "job {} is not running: it has ended or was never accepted here"

logger = logging.getLogger(__name__)


class Dispatcher(Actor):
    """The jobs' only owner. Every public method runs as a turn of this actor; nothing else touches the state."""

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        rpc: RpcClient,
        store: JobStore,
        blobs: BlobServerGateway,
        *,
        resources: ResourceManager,
        clock: SteadyClock,
        hearing: Hearing,
        authority: Authority,
        epoch: int,
        lineage: str,
        address: str,
        checkpoint_root: str,
        checkpoints_recorded: bool,
        blocked: BlockedPlaces,
        storage_problem: Callable[[], str],
    ) -> None:
        super().__init__("dispatcher", inbox_limit=INBOX_LIMIT + MESSAGES_PER_JOB * configuration[options.MAX_JOBS])
        self._system = system
        self._configuration = configuration
        self._rpc = rpc
        self._blobs = blobs
        self._resources = resources
        self._clock = clock
        self._hearing = hearing
        self._authority = authority
        self._epoch = epoch
        self._lineage = lineage
        self._address = address
        self._checkpoint_root = checkpoint_root
        self._checkpoints_recorded = checkpoints_recorded
        self._rpc_timeout = configuration[options.RPC_TIMEOUT]
        self._keep = configuration[options.RESULT_RETENTION]
        self._table = JobTable(self._keep)
        self._creating: dict[JobId, JobGraph] = {}
        self._writes = StoreWrites(store, system.rng, authority.suspect)
        self._checkpoints = CheckpointRecords(self, store, system.rng, self._checkpoints_written)
        self._moves = DriverMoves(blocked, configuration[options.EVACUATION_TIMEOUT])
        self._procedures = Procedures(
            self, self._writes, self._apply, self._checkpoints_written, self._lacks_driver, clock.now_ms
        )
        self._hold = AttemptHold(storage_problem)
        self._answers = Answers()
        self._calls = BoundedCalls(self, CALLS_AT_ONCE)
        self._unread = UnreadJobs(self, store, system.rng, self._take_again)
        self._alarms = Alarms(clock.now, self._rings)
        self._ringing: set[JobId] = set()  # a deadline is due, but the leadership is not confirmed yet
        self._expiring = False

    async def run(self) -> None:
        self.start_effect("alarms", self._alarms.run(), deadline=None)
        self.start_effect("unread jobs", self._unread.run(), deadline=None)
        try:
            await super().run()
        finally:
            self._answers.give_up(
                UnknownOutcome(
                    "this JobManager stopped leading before it could answer",
                    hint="it may have been done: ask the new leader, or repeat it with the same idempotency key",
                )
            )

    @asked
    def recover(self, stored: list[StoredJob], results: list[JobResult]) -> None:
        """Take over the jobs and results of the store. Call this once, before anything else."""
        self._table.load(results)
        for entry in stored:
            graph = entry.graph or unreadable_graph(entry.job_id, entry.idempotency_key, self._clock.now_ms())
            self._add(graph, entry, recovered=True)
            if entry.canceled:
                self._apply(entry.job_id, ev.CancelRequested())

    # --- submission and cancellation ----------------------------------------------------------------------------------

    async def submit(self, graph: JobGraph) -> Submission:
        """Accept a job durably.

        Raises InvalidInput, NotUploaded (an artefact), Conflict (the id is taken), RetryLater, UnknownOutcome, Fatal.
        """
        answer = await self.ask(partial(self._submit, graph))
        return await answer

    def _submit(self, graph: JobGraph) -> asyncio.Future[Submission]:
        check_graph(graph)
        job_configuration(self._configuration, graph)
        if graph.job_id in self._creating or self._table.key_of(graph.job_id) is not None:
            before = self._submitted_before(graph)
            known: asyncio.Future[Submission] = self._answers.new()
            known.set_result(before)
            return known
        most = self._configuration[options.MAX_JOBS]
        if self._table.running() + len(self._creating) >= most:
            raise RetryLater(f"{most} jobs wait or run already", hint=f"see {options.MAX_JOBS.key}")
        answer: asyncio.Future[Submission] = self._answers.new()
        self._creating[graph.job_id] = graph
        self.start_effect(f"create {graph.job_id}", self._create(graph, answer), deadline=None)
        return answer

    def _submitted_before(self, graph: JobGraph) -> Submission:
        creating = self._creating.get(graph.job_id)
        key = creating.idempotency_key if creating else self._table.key_of(graph.job_id)
        if key != graph.idempotency_key:
            raise Conflict(f"job id {graph.job_id} is taken by another submission", hint="submit with a new job id")
        if creating is not None:
            raise RetryLater(f"job {graph.job_id} is being submitted", hint="ask again in a moment")
        return Submission(job_id=graph.job_id, created=False)

    async def _create(self, graph: JobGraph, answer: asyncio.Future[Submission]) -> None:
        def give_up(error: EmberkeepError) -> None:
            if not answer.done():
                answer.set_exception(error)

        job_id: JobId | None = None
        try:
            await self._blobs.claim(graph.job_id, artefact_contents(graph))
        except EmberkeepError as error:
            give_up(error)
        else:
            job_id = await self._writes.create(graph, give_up)
            if job_id != graph.job_id:
                self._blobs.withdraw(graph.job_id)
        self.tell(partial(self._created, graph, job_id, answer))

    def _created(self, graph: JobGraph, job_id: JobId | None, answer: asyncio.Future[Submission]) -> None:
        self._creating.pop(graph.job_id, None)
        if job_id is None:
            return
        created = job_id == graph.job_id
        # Another submission under the same key may have written the job and not know it yet. Add the job now.
        written = graph if created else self._creating.pop(job_id, None)
        if written is not None and self._table.key_of(job_id) is None:
            logger.info("job %s (%s) accepted", job_id, graph.name)
            self._add(written, StoredJob(job_id=job_id, attempt=0, graph=written))
        if not answer.done():
            answer.set_result(Submission(job_id=job_id, created=created))

    def _add(self, graph: JobGraph, stored: StoredJob, *, recovered: bool = False) -> None:
        """Start to manage a job. ``graph``: the stored graph, or a stand-in if the stored one cannot be read."""
        attempt = stored.attempt
        configuration, lacks = usable_configuration(self._configuration, graph)
        state = JobState(
            graph=graph,
            policy=job_policy(configuration),
            strategy=restart_strategy(configuration),
            attempt=attempt,
            home=stored.home,
            stopped=bool(stored.stopped),
        )
        standing = Procedures.recovered(graph.job_id, stored.procedure, stored.stopped, stored.pointers)
        job = ManagedJob(
            JobMachine(state),
            stored.graph,
            self._table.next_order(),
            pointers=stored.pointers,
            standing=standing,
            lacks=lacks,
        )
        self._table.active[graph.job_id] = job
        self._procedures.watch_deadline(graph.job_id, standing)
        if stored.graph is not None:  # keep all BLOBs of an unreadable job
            self._blobs.job_submitted(graph.job_id, artefact_keys(graph), attempt)
        self._resources.add_job(graph.job_id, job.order, attempt)
        if stored.trouble is Trouble.AWAY:
            logger.warning("job %s waits for its job graph: %s", graph.job_id, stored.problem)
            self._apply(graph.job_id, ev.BeginWithoutGraph(stored.problem))
        else:
            self._apply(graph.job_id, ev.Begin(stored.problem, recovered))

    def _take_again(self, stored: StoredJob) -> None:
        """Act on what a repeated read of a job has found: its graph, or why it still cannot be read."""
        job = self._table.active.get(stored.job_id)
        if job is None or job.machine.state.phase is not Phase.WITHOUT_GRAPH:
            return
        if stored.trouble is Trouble.AWAY:
            self._apply(stored.job_id, ev.GraphStillAway(stored.problem))
            return
        graph = stored.graph
        if graph is None or stored.problem:
            self._apply(stored.job_id, ev.GraphDamaged(stored.problem))
            return
        configuration, job.lacks = usable_configuration(self._configuration, graph)
        logger.info("job %s: its job graph can be read again", stored.job_id)
        job.graph = graph
        self._blobs.job_submitted(stored.job_id, artefact_keys(graph), job.machine.state.attempt)
        self._apply(stored.job_id, ev.GraphRead(graph, job_policy(configuration), restart_strategy(configuration)))

    async def cancel(self, job_id: JobId, *, grace: float | None = None) -> None:
        """Cancel durably: once this returns, the next leader knows it too.

        Raises Absent; Conflict if the job has ended otherwise; RetryLater, UnknownOutcome, Fatal.
        """
        answer = await self.ask(partial(self._cancel, job_id, grace))
        await answer

    def _cancel(self, job_id: JobId, grace: float | None) -> asyncio.Future[None]:
        ended = self._is_canceled(job_id)
        answer: asyncio.Future[None] = self._answers.new()
        if ended:
            answer.set_result(None)
        else:
            self.start_effect(f"cancel {job_id}", self._record_cancel(job_id, grace, answer), deadline=None)
        return answer

    async def _record_cancel(self, job_id: JobId, grace: float | None, answer: asyncio.Future[None]) -> None:
        try:
            await self._writes.record_cancel(job_id)
        except Absent:
            logger.info("job %s has ended before it could be canceled", job_id)
        except Conflict as error:  # another JobManager is the leader
            if not answer.done():
                answer.set_exception(RetryLater(f"this JobManager leads no more: {error.message}", hint="try again"))
            raise
        except EmberkeepError as error:
            if not answer.done():
                answer.set_exception(error)
            return
        self.tell(partial(self._canceled, job_id, grace, answer))

    def _canceled(self, job_id: JobId, grace: float | None, answer: asyncio.Future[None]) -> None:
        try:
            if not self._is_canceled(job_id):
                self._apply(job_id, ev.CancelRequested(grace))
        except (Absent, Conflict) as error:  # the job ended while the cancellation was written
            if not answer.done():
                answer.set_exception(error)
        if not answer.done():
            answer.set_result(None)

    def _is_canceled(self, job_id: JobId) -> bool:
        """True if the job has ended by cancellation, False if it has not ended.

        Raises Absent; Conflict if it has ended in another way.
        """
        status = self._table.view(job_id).status
        if status.is_globally_terminal and status is not JobStatus.CANCELED:
            raise Conflict(f"job {job_id} has ended: it is {status.value}")
        return status.is_globally_terminal

    # --- savepoints and stops -----------------------------------------------------------------------------------------

    async def request_procedure(self, job_id: JobId, request: ProcedureRequest) -> None:
        """Record durably what a job is asked to do; see ProcedureGateway.

        Raises Absent, Conflict, RetryLater, UnknownOutcome, Fatal.
        """
        answer = await self.ask(partial(self._request_procedure, job_id, request))
        await answer

    def _request_procedure(self, job_id: JobId, request: ProcedureRequest) -> asyncio.Future[None]:
        view = self._table.view(job_id)
        answer: asyncio.Future[None] = self._answers.new()
        if self._procedures.knows(job_id, request.trigger_id, view.pointers):
            answer.set_result(None)
        elif view.status.is_globally_terminal:
            raise Conflict(f"job {job_id} has ended: it is {view.status.value}")
        elif view.unreadable:
            raise RetryLater(f"job {job_id} waits for {view.waiting}", hint="its driver goes on; try again later")
        else:
            standing = self._table.active[job_id].standing
            self._procedures.request(job_id, standing, view.status, request, answer)
        return answer

    @asked
    def procedure(self, job_id: JobId, trigger_id: str) -> ProcedureView:
        """Return the progress of a request. Raises Absent."""
        view = self._table.view(job_id)
        if view.procedure is not None and view.procedure.trigger_id == trigger_id:
            return view.procedure
        return self._procedures.ended(job_id, trigger_id, view.pointers)

    def _lacks_driver(self, job_id: JobId) -> str | None:
        job = self._table.active.get(job_id)
        if job is None or job.machine.state.phase not in (Phase.PLACING, Phase.BACKING_OFF):
            return None
        return job.machine.state.waiting() or job.machine.state.status.value

    # --- evacuated nodes ----------------------------------------------------------------------------------------------

    @asked
    def block(self, places: BlockedPlaces) -> None:
        """Start no driver in blocked places from now on, and move drivers away from evacuated ones."""
        self._moves.places = places
        self._review_places()

    @told
    def task_managers_draining(self, task_managers: frozenset[TaskManagerId], movable: frozenset[JobId]) -> None:
        self._moves.draining, self._moves.movable = task_managers, movable
        self._review_places()

    def _review_places(self) -> None:
        for job in list(self._table.active.values()):
            place = job.machine.state.place
            if place is not None and self._moves.is_blocked(place):
                self._apply(job.job_id, ev.PlaceBlocked(place.instance))
            self._review_move(job)

    def _order_start(self, job: ManagedJob, attempt: int, place: ev.DriverPlace) -> None:
        """Order the driver's start, or release its place if the place is now blocked.

        While an earlier order to start the driver is under way, keep the place, because that order may still arrive.
        """
        key = ("start", job.job_id, attempt)
        if not self._moves.is_blocked(place):
            self._calls.submit(key, partial(self._start, job, attempt, place))
        elif not self._calls.is_running(key):
            self.tell(partial(self._apply, job.job_id, ev.PlaceBlocked(place.instance)))

    def _review_move(self, job: ManagedJob) -> None:
        move = self._moves.due(job, self._clock.now())
        if move is Move.RESTART:
            logger.info("job %s: its driver leaves an evacuated node", job.job_id)
            self._note_left_behind(job)
            self._apply(job.job_id, ev.MoveDriver(job.machine.state.attempt))
        elif move is Move.ASK:
            request = ProcedureRequest(
                trigger_id=self._system.ids.hex32(), procedure=Procedure.MOVE, requested_ms=self._clock.now_ms()
            )
            try:
                self._procedures.request(
                    job.job_id, job.standing, job.machine.state.status, request, self._answers.new()
                )
            except Conflict as error:
                logger.info("job %s does not move: %s", job.job_id, error)

    def _note_left_behind(self, job: ManagedJob) -> None:
        entries = self._moves.left_behind(job, self._clock.now_ms())
        for entry in entries:
            logger.warning("job %s: %s", job.job_id, entry.message)
        if entries:
            self._apply(job.job_id, ev.ExceptionsNoted(job.machine.state.attempt, entries))

    def _judged(self, job: ManagedJob, attempt: int, outcome: AttemptOutcome) -> AttemptOutcome:
        """Return the outcome, turned into a move if the driver was lost while it had to move."""
        judged = self._moves.outcome(job, outcome)
        if judged is not outcome and attempt == job.machine.state.attempt:
            self._note_left_behind(job)
        return judged

    # --- views --------------------------------------------------------------------------------------------------------

    @asked
    def views(self) -> list[JobView]:
        return self._table.views()

    @asked
    def view(self, job_id: JobId) -> JobView:
        """Return one job. Raises Absent."""
        return self._table.view(job_id)

    # --- JobMasters ---------------------------------------------------------------------------------------------------

    async def orders(self, job_id: JobId, told: ProcedureProgress | None) -> tuple[ProcedureRequest | None, str]:
        """Return the job's request and the trigger id of the newest request whose end is recorded.

        Both go into the reply to a JobMaster. If ``told`` reports an end that is being recorded, wait up to
        END_PATIENCE seconds for the record, so that the reply can include it.
        """
        settled = await self.ask(partial(self._end_under_way, job_id, told))
        if settled is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_PATIENCE):
                    await settled.wait()
        return await self.ask(partial(self._orders, job_id, told))

    def _end_under_way(self, job_id: JobId, told: ProcedureProgress | None) -> asyncio.Event | None:
        """Return an event that is set once the reported end is recorded; None if no such record is under way."""
        job = self._table.active.get(job_id)
        if job is None or told is None or not told.phase.is_final or job.standing.settled.is_set():
            return None
        return job.standing.settled

    def _orders(self, job_id: JobId, told: ProcedureProgress | None) -> tuple[ProcedureRequest | None, str]:
        job = self._table.active.get(job_id)
        if job is None:
            return None, ""
        return job.standing.wanted, Procedures.recorded(job.standing, told)

    @asked
    def register_jobmaster(self, request: RegisterJobMaster) -> bool:
        """Take a JobMaster's registration. Return False if a newer status is known.

        Raises Conflict if the JobMaster must end itself.
        """
        job = self._accepted(request.job_id, request.attempt)
        job.job_master, job.task_manager = request.address, request.task_manager
        self._hearing.heard(request.task_manager, self._clock.now())
        self._apply(job.job_id, ev.JobMasterRegistered(request.attempt, request.task_manager, request.pid))
        return self._take_status(job, request.attempt, request.status)

    @asked
    def jobmaster_heartbeat(self, request: JobMasterHeartbeat) -> tuple[bool, bool, str]:
        """Return (registered, status is the newest, its address). Raises Conflict if the JobMaster must end itself."""
        job = self._accepted(request.job_id, request.attempt)
        if job.task_manager is not None:
            self._hearing.heard(job.task_manager, self._clock.now())
        if not job.machine.state.knows_jobmaster():
            return (False, False, "")
        return (True, self._take_status(job, request.attempt, request.status), job.job_master)

    def _accepted(self, job_id: JobId, attempt: int) -> ManagedJob:
        """Return the job if its JobMaster of this attempt may continue; else raise Conflict.

        Either way, record that the attempt has made contact.
        """
        self._attempt_seen(job_id, attempt)
        job = self._table.active.get(job_id)
        if job is not None:
            self._apply(job_id, ev.JobMasterHeard(attempt))
        refusal = _NOT_RUNNING if job is None else job.machine.state.refusal(attempt)
        if refusal:
            self._authority.check()  # a refused JobMaster ends itself, so only a certain leader may refuse
        if job is None or refusal:
            raise Conflict(refusal.format(job_id))
        return job

    def _take_status(self, job: ManagedJob, attempt: int, status: JobMasterStatus) -> bool:
        if not job.take(status):
            return False
        if status.exceptions != job.noted:
            job.noted = status.exceptions
            self._apply(job.job_id, ev.ExceptionsNoted(attempt, status.exceptions))
        if merged(job.pointers, attempt, status.checkpoints) is not job.pointers:
            self._checkpoints.note(job.job_id, attempt, status.checkpoints)
        self._procedures.take(job.job_id, job.standing, attempt, status.procedure)
        self._review_move(job)
        return True

    def _checkpoints_written(self, job_id: JobId, pointers: JobPointers) -> None:
        job = self._table.active.get(job_id)
        if job is not None:
            job.pointers = pointers

    async def report_outcome(self, request: ReportOutcome) -> None:
        """Take the first report of an attempt's end; repetitions do no harm.

        Returns once the job's result is in the store, if the end is final. Raises Conflict for older attempts,
        RetryLater if the result is not stored yet.
        """
        stored = await self.ask(partial(self._report_outcome, request))
        if stored is None:
            return
        try:
            async with asyncio.timeout(END_PATIENCE):
                await stored.wait()
        except TimeoutError:
            raise RetryLater(
                f"the end of job {request.job_id} is known, and not stored yet", hint="report it again"
            ) from None

    def _report_outcome(self, request: ReportOutcome) -> asyncio.Event | None:
        """Return an event that is set once the job's result is stored; None if there is nothing to wait for."""
        job = self._table.active.get(request.job_id)
        if job is None:
            if self._table.has_ended(request.job_id, request.attempt):
                return None
            raise Conflict(f"job {request.job_id} has no attempt {request.attempt} that could end")
        self._attempt_seen(request.job_id, request.attempt)
        if request.attempt != job.machine.state.attempt:
            raise Conflict(job.machine.state.refusal(request.attempt))
        if job.machine.state.phase in (Phase.WITHOUT_GRAPH, Phase.ADOPTING):
            self._apply(job.job_id, ev.JobMasterHeard(request.attempt))
            raise RetryLater(f"how job {job.job_id} goes on is not decided: it waits for {job.machine.state.waiting()}")
        outcome = self._judged(job, request.attempt, request.outcome)
        self._apply(job.job_id, ev.OutcomeReported(request.attempt, outcome))
        if job.machine.state.phase is Phase.RECORDING_RESULT:
            return job.result_stored
        if outcome.kind is None and job.machine.state.phase in _ANOTHER_FOLLOWS:
            # The attempt was abandoned before it reported: its success no longer counts.
            raise Conflict(job.machine.state.refusal(request.attempt))
        return None

    # --- what the ResourceManager tells -------------------------------------------------------------------------------

    @told
    def place_granted(self, job_id: JobId, info: TaskManagerInfo, *, only_node: bool) -> None:
        self._apply(job_id, ev.PlaceGranted(_place(info), only_node))

    @told
    def place_explained(self, job_id: JobId, text: str, *, blocked: bool) -> None:
        self._apply(job_id, ev.PlaceExplained(text, blocked))

    @told
    def attempts_seen(self, attempts: tuple[AttemptKey, ...]) -> None:
        for seen in attempts:
            self._attempt_seen(seen.job_id, seen.attempt)

    def _attempt_seen(self, job_id: JobId, attempt: int) -> None:
        """Note an attempt number that another process knows.

        One that is newer than ours shows that the job store was put back from an older copy.
        """
        job = self._table.active.get(job_id)
        if job is None or not job.machine.state.is_news(attempt):
            return
        before = job.machine.state.attempt
        self._apply(job_id, ev.AttemptSeen(attempt))
        if job.machine.state.phase is Phase.ADOPTING and attempt == job.machine.state.attempt:
            logger.warning(
                "job %s has attempt %d, and the job store knows %d: it was put back from an older copy. That attempt "
                "goes on; what has happened since the copy is not known here: see docs/storage.md",
                *(job_id, attempt, before),
            )

    @told
    def task_managers_lost(self, instances: tuple[InstanceId, ...]) -> None:
        lost = frozenset(instances)
        for job_id, job in list(self._table.active.items()):
            instance = job.machine.state.stands_on()
            if instance in lost and instance is not None:
                self._apply(job_id, ev.TaskManagerLost(instance))

    @told
    def drivers_changed(
        self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...], vanished: tuple[DriverReport, ...]
    ) -> None:
        place = _place(info)
        for driver in drivers:
            if driver.state is ProcessState.EXITED:
                outcome = driver.outcome or AttemptOutcome(
                    exit_code=1, kind=FailureKind.LOST, message="the driver ended without a word"
                )
                job = self._table.active.get(driver.job_id)
                outcome = outcome if job is None else self._judged(job, driver.attempt, outcome)
                self._apply(driver.job_id, ev.DriverExited(driver.attempt, place, outcome))
            else:
                self._apply(driver.job_id, ev.DriverListed(driver.attempt, place, driver.pid))
        for driver in vanished:
            self._apply(driver.job_id, ev.DriverVanished(driver.attempt, info.instance))

    @told
    def drivers_complete(self, info: TaskManagerInfo, drivers: tuple[DriverReport, ...]) -> None:
        place, listed = _place(info), {(driver.job_id, driver.attempt) for driver in drivers}
        for job_id, job in list(self._table.active.items()):
            if (job_id, job.machine.state.attempt) not in listed:
                self._apply(
                    job_id, ev.DriverNotAtHome(job.machine.state.attempt, place, continues=info.predecessor is not None)
                )

    def check_invariants(self) -> None:
        """Raise AssertionError if a job's state contradicts itself. For tests and the simulator."""
        for job in self._table.active.values():
            job.machine.check_invariants()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _rings(self, job_id: JobId) -> None:
        if job_id not in self._ringing:
            self._ringing.add(job_id)
            self.start_effect(f"deadline of {job_id}", self._tick(job_id), deadline=None)

    async def _tick(self, job_id: JobId) -> None:
        """Feed a due deadline once the leadership is confirmed: a deadline can end a driver."""
        try:
            await self._authority.wait()
        finally:
            self._ringing.discard(job_id)
        self.tell(partial(self._apply, job_id, ev.Tick()))

    # --- machines -----------------------------------------------------------------------------------------------------

    def _apply(self, job_id: JobId, event: ev.Event) -> None:
        """Feed a job's machine and carry out its effects. Events for jobs that are no longer here are dropped."""
        job = self._table.active.get(job_id)
        if job is None:
            return
        before = job.machine.state.status
        now = self._clock.now()
        moment = ev.Moment(now, self._clock.now_ms(), self._system.rng.random(), self._hearing.since(now))
        effects = job.machine.handle(event, moment)
        if job.machine.state.status is not before:
            logger.info(
                "job %s: %s → %s (%s)", job_id, before.value, job.machine.state.status.value, type(event).__name__
            )
            if job.machine.state.status is JobStatus.RESTARTING:
                self._blobs.job_restarting(job_id, job.machine.state.attempt)
            if job.machine.state.status.is_globally_terminal:
                self._ended(job)
        for effect in effects:
            self._perform(job, effect)
        self._alarms.set(job_id, job.machine.state.deadline() if job_id in self._table.active else None)

    def _perform(self, job: ManagedJob, effect: ev.Effect) -> None:  # noqa: C901 - one case for each
        job_id, resources = job.job_id, self._resources
        match effect:
            case ev.ReadGraph():
                self._unread.add(job_id)
            case ev.RequestPlace():
                job.report = None
                need = driver_need(job.machine.state.graph, job.machine.state.starts.nodes)
                resources.request_place(job_id, need, job.machine.state.attempt + 1)
            case ev.ExplainPlace():
                resources.explain_place(job_id)
            case ev.WithdrawPlace():
                resources.withdraw_place(job_id)
            case ev.RecordAttempt(attempt):
                place = job.machine.state.place
                record = self._record_attempt(job, attempt, None if place is None else place.home)
                self.start_effect(f"record attempt of {job_id}", record, deadline=None)
            case ev.AdoptAttempt(attempt):
                self.start_effect(f"adopt attempt of {job_id}", self._adopt_attempt(job, attempt), deadline=None)
            case ev.StartDriver(attempt, place):
                self._order_start(job, attempt, place)
            case ev.StopDriver(attempt, place, grace):
                self._calls.submit(("stop", job_id, attempt), partial(self._stop, job_id, attempt, place, grace))
            case ev.DropRequirements(attempt):
                resources.close_requirements(job_id, attempt)
            case ev.AttemptOver(attempt):
                resources.end_attempt(job_id, attempt)
            case ev.RecordResult(result):
                self.start_effect(f"record result of {job_id}", self._record_result(result), deadline=None)
            case ev.JobOver():
                resources.remove_job(job_id)
                self._table.remove(job_id)

    async def _record_attempt(self, job: ManagedJob, attempt: int, home: DriverHome | None) -> None:
        # Record what the previous attempt did first: it may have stopped the job, so that no other attempt follows.
        await job.standing.settled.wait()
        await self._hold.passed(job, attempt)
        written = await self._writes.record_attempt(job.job_id, attempt, home)
        self.tell(partial(self._attempt_recorded, job, attempt, written))

    async def _adopt_attempt(self, job: ManagedJob, attempt: int) -> None:
        await self._writes.adopt_attempt(job.job_id, attempt)
        self.tell(partial(self._attempt_recorded, job, attempt, True))

    def _attempt_recorded(self, job: ManagedJob, attempt: int, written: bool) -> None:
        job_id = job.job_id
        if written:
            self._resources.begin_attempt(job_id, attempt)
            self._procedures.attempt_recorded(job_id, job.standing)
        self._apply(job_id, ev.AttemptRecorded() if written else ev.AttemptUnknown())

    async def _record_result(self, result: JobResult) -> None:
        await self._writes.record_result(result)
        self.tell(partial(self._apply, result.job_id, ev.ResultRecorded()))

    def _ended(self, job: ManagedJob) -> None:
        job.result_stored.set()
        self._unread.forget(job.job_id)
        if job.machine.state.result is None or not job.machine.state.result.keeps_data:
            self._blobs.job_ended(job.job_id)
        self._checkpoints.forget(job.job_id)
        self._procedures.job_ended(job.job_id, job.standing, job.machine.state.status)
        if self._table.ended(job) and not self._expiring:
            self._expiring = True
            self.start_effect("expire results", self._expire(), deadline=None)

    async def _expire(self) -> None:
        await self._writes.expire_results(self._keep)
        self._expiring = False

    async def _start(self, job: ManagedJob, attempt: int, place: ev.DriverPlace) -> None:
        if self._hold.waits_for(job) or not await self._authority.confirmed():
            return  # the machine orders it again
        if self._moves.is_blocked(place):
            return  # blocked while this waited its turn; the machine orders it again and learns of that
        request = StartDriver(
            epoch=self._epoch,
            graph=job.machine.state.graph,
            attempt=attempt,
            memory_mb=driver_need(job.machine.state.graph).memory_mb,
            job_manager=self._address,
            checkpoint_root=self._checkpoint_root,
            checkpoints_recorded=self._checkpoints_recorded,
            checkpoints=job.pointers.queries,
            procedure=job.standing.wanted,
            lineage=self._lineage,
        )
        event: ev.Event
        try:
            await self._rpc.call(place.address, request, Ack, timeout=self._rpc_timeout)
            event = ev.StartAccepted(attempt)
        except (RetryLater, UnknownOutcome) as error:
            logger.info("start of job %s on task manager %s: %s", job.job_id, place.task_manager, error)
            return  # the machine orders it again
        except EmberkeepError as error:
            event = ev.StartRefused(attempt, f"task manager {place.task_manager} does not start the driver: {error}")
        self.tell(partial(self._apply, job.job_id, event))

    async def _stop(self, job_id: JobId, attempt: int, place: ev.DriverPlace, grace: float) -> None:
        if not await self._authority.confirmed():
            return  # the machine orders it again
        request = StopDriver(epoch=self._epoch, job_id=job_id, attempt=attempt, grace=grace, lineage=self._lineage)
        try:
            await self._rpc.call(place.address, request, Ack, timeout=self._rpc_timeout)
        except EmberkeepError as error:  # the machine repeats the order until the driver is gone
            logger.info("stop of job %s on task manager %s: %s", job_id, place.task_manager, error)


def _place(info: TaskManagerInfo) -> ev.DriverPlace:
    return ev.DriverPlace(info.id, info.instance, info.address, info.node_id)
