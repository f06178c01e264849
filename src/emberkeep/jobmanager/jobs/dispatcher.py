"""The Dispatcher owns the jobs: it feeds their state machines with events and carries out the resulting effects."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

from emberkeep.base.actors import INBOX_LIMIT, Actor, asked
from emberkeep.base.configuration.options.blocklist import EVACUATION_TIMEOUT
from emberkeep.base.configuration.options.job_managers import MAX_JOBS, RESULT_RETENTION, RPC_TIMEOUT
from emberkeep.base.configuration.options.jobs import GANG, PRIORITY
from emberkeep.base.configuration.options.standbys import STANDBY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import UnknownOutcome
from emberkeep.base.identity import CLUSTER_NAME
from emberkeep.base.ids import JobId
from emberkeep.base.system import System
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobmanager.answers import Answers
from emberkeep.jobmanager.jobs.admission import artefact_keys, driver_need, unreadable_graph, usable_configuration
from emberkeep.jobmanager.jobs.attempt_hold import AttemptHold
from emberkeep.jobmanager.jobs.cancellations import Cancellations
from emberkeep.jobmanager.jobs.checkpoint_records import CheckpointRecords
from emberkeep.jobmanager.jobs.cluster_changes import ClusterChanges
from emberkeep.jobmanager.jobs.driver_calls import DriverCalls
from emberkeep.jobmanager.jobs.driver_moves import DriverMoves
from emberkeep.jobmanager.jobs.driver_orders import DriverOrders
from emberkeep.jobmanager.jobs.earlier_attempts import EarlierAttempts
from emberkeep.jobmanager.jobs.health.notices import JobNotices
from emberkeep.jobmanager.jobs.health.watches import JobWatches
from emberkeep.jobmanager.jobs.job_machines import JobMachines
from emberkeep.jobmanager.jobs.job_master_reports import JobMasterReports
from emberkeep.jobmanager.jobs.job_records import JobRecords
from emberkeep.jobmanager.jobs.job_table import JobTable, ManagedJob
from emberkeep.jobmanager.jobs.requests import JobRequests
from emberkeep.jobmanager.jobs.savepoints.periodic import JobSavepoints
from emberkeep.jobmanager.jobs.submissions import Submissions
from emberkeep.jobmanager.jobs.unread_jobs import UnreadJobs
from emberkeep.jobmanager.jobs.upgrades.known import KnownUpgrades
from emberkeep.jobmanager.jobs.upgrades.upgrades import Upgrades
from emberkeep.jobmanager.notes.job_notes import JobNotes
from emberkeep.jobmanager.resources.resource_manager import MESSAGES_PER_JOB, ResourceManager
from emberkeep.jobmanager.store_writes import StoreWrites
from emberkeep.jobmanager.surroundings import Surroundings
from emberkeep.jobmanager.term import Term
from emberkeep.jobmanager.views.blobs import BlobServerGateway
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.ended_work import with_work
from emberkeep.jobs import events as ev
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.driver_move import MoveMachine
from emberkeep.jobs.machine import JobMachine
from emberkeep.jobs.model import JobGraph, JobResult, JobStatus
from emberkeep.jobs.policy import job_policy
from emberkeep.jobs.ports import JobStore, StoredJob, Trouble
from emberkeep.jobs.restart import restart_strategy
from emberkeep.jobs.state import JobState
from emberkeep.jobs.transitions import Phase
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.requests.events import Ended
from emberkeep.lifecycle.requests.machine import RequestMachine
from emberkeep.lifecycle.requests.transitions import RequestPhase
from emberkeep.watchdog.machine import JobWatch
from emberkeep.watchdog.settings import watch_settings

log = structlog.get_logger(__name__)


class Dispatcher(Actor):
    """The jobs' only owner. Every call from outside goes through the inbox; nothing else touches the state.

    - ``submissions``, ``cancellations``, ``requests`` and ``upgrades``: what users ask for.
    - ``job_masters``: what JobMasters report.
    - ``cluster``: what the ResourceManager reports.
    - ``moves``: what follows from the blocklist.

    The constructor wires all parts, so it takes more than six collaborators; no subset of them has a name.
    """

    def __init__(
        self,
        system: System,
        configuration: Configuration,
        surroundings: Surroundings,
        store: JobStore,
        blobs: BlobServerGateway,
        *,
        resources: ResourceManager,
        term: Term,
        blocked: BlockedPlaces,
    ) -> None:
        super().__init__("dispatcher", inbox_limit=INBOX_LIMIT + MESSAGES_PER_JOB * configuration[MAX_JOBS])
        self._configuration = configuration
        self._blobs = blobs
        self._resources = resources
        self._term = term
        self._table = JobTable(configuration[RESULT_RETENTION])
        self._machines = JobMachines(self, self._table, term, system.rng, self)
        self._answers = Answers()
        writes = StoreWrites(store, system.rng, term.authority.suspect)
        hold = AttemptHold(lambda: surroundings.storage.problem)
        calls = DriverCalls(surroundings, configuration[RPC_TIMEOUT], term)
        self._records = JobRecords(self, self._machines, writes, hold, self._attempt_begun)
        self._checkpoints = CheckpointRecords(self, store, system.rng, self._checkpoints_written)
        self._unread = UnreadJobs(self, store, system.rng, self._take_again)
        self.requests = JobRequests(
            self, self._machines, writes, self._answers, term.clock, calls, self._periodic_savepoint_ended
        )
        self._known_upgrades = KnownUpgrades(self._table)
        self.submissions = Submissions(
            self, configuration, self._table, writes, blobs, self._answers, self._add_submitted, self._known_upgrades
        )
        self._savepoints = JobSavepoints(
            self,
            configuration,
            surroundings,
            self._machines,
            self.requests,
            writes,
            term,
            system.ids,
            self.submissions.creating,
        )
        self.cancellations = Cancellations(self, self._machines, writes, self._answers)
        self.upgrades = Upgrades(
            self,
            configuration,
            surroundings,
            self._known_upgrades,
            self._machines,
            self.requests,
            self.submissions,
            self.cancellations,
            writes,
            blobs,
            self._answers,
            term,
        )
        self.moves = DriverMoves(self, self._machines, self.requests, blocked, system.ids, term.clock)
        self._orders = DriverOrders(self, self._machines, calls, term.authority, hold, self.moves)
        self.cluster = ClusterChanges(self, self._machines, self.moves)
        self._notices = JobNotices(surroundings.notifier, term)
        self._watches = JobWatches(self, self._machines, term, self._notices)
        self._earlier = EarlierAttempts(
            self, self._table, surroundings.chronicle, system.rng, self._watches, term.epoch
        )
        self.job_masters = JobMasterReports(
            self, self._machines, term, self.requests, self._checkpoints, self.moves, self._watches, self._savepoints
        )

    async def run(self) -> None:
        self.start_effect("deadlines", self._machines.deadlines.run(), deadline=None)
        self.start_effect("unread jobs", self._unread.run(), deadline=None)
        self.start_effect("upgrades", self.upgrades.run(), deadline=None)
        try:
            await super().run()
        finally:
            self._answers.give_up(
                UnknownOutcome(
                    "this JobManager stopped leading before it could answer",
                    hint="the request may have been carried out: ask the new leader, or repeat it with the same "
                    "idempotency key",
                )
            )

    def check_invariants(self) -> None:
        """Raise AssertionError if a job's state contradicts itself. For tests and the simulator."""
        self._machines.check_invariants()
        self.upgrades.check_invariants()

    # --- jobs from the store ------------------------------------------------------------------------------------------

    @asked
    def recover(self, stored: list[StoredJob], results: list[JobResult], upgrades: Sequence[Upgrade] = ()) -> None:
        """Take over what is in the store. Call this once, before anything else."""
        self._table.load(results)
        for entry in stored:
            graph = entry.graph or unreadable_graph(entry.job_id, entry.idempotency_key, self._term.clock.now_ms())
            self._add(graph, entry, recovered=True)
            if entry.canceled:
                self._machines.apply(entry.job_id, ev.CancelRequested())
        self.upgrades.recover(upgrades)
        begun = [entry.job_id for entry in stored if entry.attempt]
        self.start_effect("earlier attempts", self._earlier.read(begun), deadline=None)

    def _add_submitted(self, graph: JobGraph) -> None:
        by = graph.owner or CLUSTER_NAME
        self._term.chronicle.note(
            Occurrence(what=What.SUBMITTED, message=f"{graph.name} was submitted by {by}", by=by, job_id=graph.job_id)
        )
        self._add(graph, StoredJob(job_id=graph.job_id, attempt=0, graph=graph))

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
            over=stored.over,
        )
        job = ManagedJob(
            JobMachine(state),
            stored.graph,
            self._table.next_order(),
            RequestMachine(graph.job_id),
            MoveMachine(self._configuration[EVACUATION_TIMEOUT]),
            JobWatch(watch_settings(configuration), attempt),
            self._savepoints.new(graph, configuration, attempt, stored.pointers),
            JobNotes(graph.job_id, attempt, self._term.started_ms),
            priority=configuration[PRIORITY],
            gang=configuration[GANG],
            pointers=stored.pointers,
            lacks=lacks,
        )
        self._table.active[graph.job_id] = job
        self.requests.begin(job, stored)
        if stored.graph is not None:  # keep all BLOBs of an unreadable job
            self._blobs.job_submitted(graph.job_id, artefact_keys(graph), attempt)
        self._resources.needs.add_job(
            graph.job_id,
            job.order,
            attempt,
            graph.namespace,
            job.priority,
            gang=job.gang,
            is_described=stored.graph is not None,
        )
        if stored.graph is not None:
            self._want_standby(graph, configuration)
        if stored.trouble is Trouble.AWAY:
            log.warning("job waits for its job graph", job=graph.job_id, reason=stored.problem)
            self._machines.apply(graph.job_id, ev.BeginWithoutGraph(stored.problem))
        else:
            self._machines.apply(graph.job_id, ev.Begin(stored.problem, recovered))

    def _take_again(self, stored: StoredJob) -> None:
        """Act on what a repeated read of a job has found: its graph, or why it still cannot be read."""
        job = self._table.active.get(stored.job_id)
        if job is None or job.state.phase is not Phase.WITHOUT_GRAPH:
            return
        if stored.trouble is Trouble.AWAY:
            self._machines.apply(stored.job_id, ev.GraphStillAway(stored.problem))
            return
        graph = stored.graph
        if graph is None or stored.problem:
            self._machines.apply(stored.job_id, ev.GraphDamaged(stored.problem))
            return
        configuration, job.lacks = usable_configuration(self._configuration, graph)
        log.info("job graph can be read again", job=stored.job_id)
        self._take_records(job, stored)
        job.graph, job.priority, job.gang = graph, configuration[PRIORITY], configuration[GANG]
        job.watch = JobWatch(watch_settings(configuration), job.state.attempt)
        job.periodic = self._savepoints.new(graph, configuration, job.state.attempt, job.pointers)
        self._blobs.job_submitted(stored.job_id, artefact_keys(graph), job.state.attempt)
        self._resources.needs.describe_job(stored.job_id, graph.namespace, job.priority, gang=job.gang)
        self._want_standby(graph, configuration)
        self._machines.apply(
            stored.job_id, ev.GraphRead(graph, job_policy(configuration), restart_strategy(configuration))
        )
        if stored.canceled:
            self._machines.apply(stored.job_id, ev.CancelRequested())

    def _take_records(self, job: ManagedJob, stored: StoredJob) -> None:
        """Take over what this leader could not read when it began, because another program had written it."""
        if job.pointers == JobPointers():
            job.pointers = stored.pointers
        if stored.attempt > job.state.attempt:  # nobody has reported about the job since then
            self._machines.attempt_seen(job.job_id, stored.attempt)
            if job.requests.phase is RequestPhase.IDLE:
                self.requests.begin(job, stored)
        if stored.stopped:
            self._machines.apply(job.job_id, ev.StopRecorded())

    def _want_standby(self, graph: JobGraph, configuration: Configuration) -> None:
        if configuration[STANDBY] == "hot":
            self._resources.standbys.want(graph, driver_need(graph))

    # --- views --------------------------------------------------------------------------------------------------------

    @asked
    def views(self) -> list[JobView]:
        return [self._with_upgrade(view) for view in self._table.views()]

    @asked
    def briefs(self) -> list[JobBrief]:
        return self._table.briefs()

    @asked
    def views_of(self, job_ids: Sequence[JobId]) -> list[JobView]:
        """Return those of these jobs that are known."""
        known = [job_id for job_id in job_ids if self._table.is_known(job_id)]
        return [self._with_upgrade(self._table.view(job_id)) for job_id in known]

    @asked
    def view(self, job_id: JobId) -> JobView:
        """Return one job. Raises Absent."""
        return self._with_upgrade(self._table.view(job_id))

    def _with_upgrade(self, view: JobView) -> JobView:
        upgrade = self._known_upgrades.of_job(view.job_id)
        return view if upgrade is None else msgspec.structs.replace(view, upgrade=upgrade)

    # --- effects of the machines --------------------------------------------------------------------------------------

    def status_changed(self, job: ManagedJob) -> None:
        """Implements EffectCarrier."""
        if job.state.status is JobStatus.RESTARTING:
            self._blobs.job_restarting(job.job_id, job.state.attempt)
        self._notices.status_changed(job)
        if job.state.status.is_globally_terminal:
            self._ended(job)

    def _ended(self, job: ManagedJob) -> None:
        job.result_stored.set()
        self._watches.ended(job)
        self._unread.forget(job.job_id)
        if job.state.result is None or not job.state.result.keeps_data:
            self._blobs.job_ended(job.job_id)
        self._checkpoints.forget(job.job_id)
        self.requests.job_ended(job)
        if self._table.ended(job):
            self._records.expire_results(self._configuration[RESULT_RETENTION])

    def carry_out(self, job: ManagedJob, effect: ev.Effect) -> None:  # noqa: C901 - one case for each
        """Implements EffectCarrier."""
        job_id, resources = job.job_id, self._resources
        match effect:
            case ev.ReadGraph():
                self._unread.add(job_id)
            case ev.RequestPlace():
                job.report = None
                need = driver_need(job.state.graph, job.state.starts.nodes)
                resources.needs.request_place(job_id, need, job.state.attempt + 1)
            case ev.ExplainPlace():
                resources.explain_place(job_id)
            case ev.WithdrawPlace():
                resources.needs.withdraw_place(job_id)
            case ev.RecordAttempt(attempt):
                self._records.begin_attempt(job, attempt)
            case ev.AdoptAttempt(attempt):
                self._records.adopt_attempt(job, attempt)
            case ev.StartDriver(attempt, place):
                self._orders.start(job, attempt, place)
            case ev.StopDriver(attempt, place, grace):
                self._orders.stop(job_id, attempt, place, grace)
            case ev.DropRequirements(attempt):
                resources.needs.close_requirements(job_id, attempt, returns=job.state.returns)
            case ev.AttemptOver(attempt):
                resources.needs.end_attempt(job_id, attempt, returns=job.state.returns)
            case ev.RecordResult(result):
                self._records.end_job(job, with_work(result, job.report))
            case ev.JobOver():
                resources.needs.remove_job(job_id)
                self._table.remove(job_id)

    def _attempt_begun(self, job: ManagedJob, attempt: int) -> None:
        self._resources.needs.begin_attempt(job.job_id, attempt)
        self.requests.attempt_recorded(job)
        self._watches.begun(job, attempt)

    def _periodic_savepoint_ended(self, job: ManagedJob, ended: Ended, savepoint: SavepointPointer | None) -> None:
        self._savepoints.request_ended(job, ended, savepoint)

    def _checkpoints_written(self, job_id: JobId, pointers: JobPointers) -> None:
        job = self._table.active.get(job_id)
        if job is not None:
            job.pointers = pointers
