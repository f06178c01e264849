"""Properties of a simulated cluster, checked against the census of processes and against what really happened.

Violations name the letter of the property:
(a) every accepted job ends, or runs, within a bound after the last fault;
(b) no slot and no resource is allocated twice, and no slot becomes free before its executor has ended;
(c) no executor and no driver outlives its attempt for longer than a bound;
(d) no two unfenced attempts of a job: an attempt begins only when every older driver is dead, or was silent towards
    the JobManager for the whole lease; two attempts never run side by side while both can reach the JobManager;
    messages of an older attempt change nothing;
(e) a final state is written once, is true, and never changes; no job fails because its driver was ended from
    outside, or its start was called off;
(f) when all jobs have ended, every task manager is free;
(g) attempt numbers only grow, and each is used once; after the store was restored from an older copy a number may be
    written again, but no two drivers are started with one number;
(m) a success that a driver has reported is acknowledged only when it is stored, no further attempt follows, and until
    then the driver's task manager keeps the success;
(n) a JobManager that cannot write to its store starts nothing, stops nothing and allocates no slot;
(v) no attempt of a stream commits a micro-batch after the script of a newer attempt has begun;
(k) a recorded checkpoint of a stream was committed, and records never go back to an older batch; the files of a
    savepoint are deleted only after it is durably recorded as retired, which an older copy of the store may forget;
(p) no working driver or executor is ended or replaced because a task manager's agent or the JobManager is down (P2):
    checked only in clusters without other faults, in which no agent is down for too long;
(h) every BLOB of a job that has not ended is in the HA store; an uploaded BLOB exists for an interval; when all jobs
    have ended nothing is left in either store;
(l) the script of a stopped job continues after its await only when the stop is durable; from then on no attempt of the
    job is started; a stop becomes durable only after its savepoint was written;
(o) executors that Spark's dynamic allocation removes end within a bound, and are not reported as lost: the latter is
    checked only in clusters without other faults than those of (p);
(i) after a block is acknowledged, no slot is allocated and no driver placed on the node, until it is unblocked or the
    block times out;
(w) no namespace has more drivers than its quota, or gets more slots than its quota while network, processes and disks
    are undisturbed; when it is quiet, none has more, unless its jobs can give none back or a leader has found it so;
    slots that are left do not count; not checked once the store was restored from an older copy;
(x) when it is quiet, a namespace whose jobs lack slots has what it is guaranteed, unless no other job has borrowed
    slots that it can give back;
(y) while the job store is lost and an emptied one in its place, no driver ends for that reason, no task manager that
    holds work gets orders, and nothing of the jobs is deleted; another cluster is refused by the storage and the store;
(z) a savepoint is recorded only after it was written, and as deleted only after its files are; no job fails because
    what is stored for it is away;
(j) a process of release 0.1.0 gets no message with a field that it does not know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import msgspec

from emberkeep.base.configuration.options.job_managers import HEARTBEAT_TIMEOUT, RPC_TIMEOUT
from emberkeep.base.configuration.options.jobs import CANCELLATION_TIMEOUT, DRIVER_LEASE
from emberkeep.base.configuration.options.slots import SLOT_TIMEOUT
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.blobs.model import permanent
from emberkeep.jobmanager.authority import FRESH
from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import FailureKind, JobResult, JobStatus
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.messages.task_managers import AllocateSlot, StartDriver, StopDriver, StopTaskManager
from emberkeep.taskmanager.agent_record import AgentRecord
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey
from emberkeep.taskmanager.processes import NOT_WANTED
from tests.support.simulator.cluster import DRIVER_MEMORY_MB, SimCluster, TaskManagerNode
from tests.support.simulator.elastic.properties import Dismissals
from tests.support.simulator.elastic.quotas import Namespaces
from tests.support.simulator.machines import Process
from tests.support.simulator.network import Party
from tests.support.simulator.scripts import SIGTERM_CODE, script_of
from tests.support.simulator.storage.properties import StoredThings
from tests.support.simulator.supervisor import SLOWEST_END

TICK = 0.5  # seconds between two checks of the census
TICKS_PER_LOOK_INSIDE = 4  # the machines' own invariants: a broken one stays broken, and checking them takes long
SLACK = 1.0  # seconds added to bounds, for messages in transit
ORDERS = (StartDriver, StopDriver, AllocateSlot, StopTaskManager)
SPEAKING = frozenset({"RegisterJobMaster", "JobMasterHeartbeat"})


@dataclass
class DriverWatch:
    """Observations of one living driver."""

    process: Process
    key: DriverKey
    last_contact: float  # when the JobManager got the last message that it answered; minus infinity: never
    impaired_at: float  # when it was last frozen, or cut off from a JobManager that may refuse it
    useless_seconds: float = 0.0  # time in which it could have been ended, since its attempt is over


@dataclass
class Properties:
    """Watches a cluster and reports violations to the cluster's history."""

    cluster: SimCluster
    allocations: dict[AllocationId, tuple[JobId, int]] = field(default_factory=dict)
    attempts: dict[JobId, int] = field(default_factory=dict)  # newest attempt recorded
    written: dict[JobId, int] = field(default_factory=dict)  # newest ever recorded, also in a replaced store
    results: dict[JobId, JobResult] = field(default_factory=dict)
    created: dict[str, JobId] = field(default_factory=dict)  # by idempotency key
    running_in: dict[JobId, tuple[int, int]] = field(default_factory=dict)  # number of the JobManager's start, attempt
    shown: dict[JobId, JobStatus] = field(default_factory=dict)  # last status that the JobManager showed
    waiting: dict[JobId, str] = field(default_factory=dict)
    drivers: dict[int, DriverWatch] = field(default_factory=dict)  # living, by pid
    drivers_started: set[tuple[JobId, int]] = field(default_factory=set)
    scripts_run: set[tuple[JobId, int]] = field(default_factory=set)
    executors_started: Counter[tuple[JobId, int]] = field(default_factory=Counter)
    orphans: dict[int, float] = field(default_factory=dict)  # executors by pid: seconds without a living driver
    pointers: dict[JobId, tuple[int, int]] = field(default_factory=dict)  # newest attempt and batch recorded
    agent_lives: dict[str, int] = field(default_factory=dict)  # starts seen, by task manager
    acknowledged: set[JobId] = field(default_factory=set)  # jobs whose driver's success was acknowledged
    kept: dict[str, frozenset[tuple[JobId, int]]] = field(default_factory=dict)  # successes in task managers' records
    _checked_scripts: int = 0
    _ticks: int = 0
    _jm_up_since: float = 0.0
    _network_bad_at: float = float("-inf")
    _was_put_back: bool = False

    def __post_init__(self) -> None:
        cluster = self.cluster
        configuration = cluster.configuration
        self._lease = configuration[DRIVER_LEASE]
        # Silence is noticed after one timeout; a message in transit may delay the next one by an RPC timeout.
        self._orphan_bound = configuration[HEARTBEAT_TIMEOUT] + configuration[RPC_TIMEOUT] + 2 * SLACK
        self._driver_bound = self._lease + self._orphan_bound + configuration[CANCELLATION_TIMEOUT]
        # A recovered slot waits again for its JobMaster, as long as a new one.
        self._orphan_bound += configuration[SLOT_TIMEOUT]
        if cluster.room.slow_ends:
            self._orphan_bound += SLOWEST_END
        self._dismissals = Dismissals(cluster, self._orphan_bound)
        self.namespaces = Namespaces(cluster)
        self._stored = StoredThings(cluster, self.attempts, self.results)
        cluster.machines.on_start.append(self._started)
        cluster.machines.on_end.append(self._ended)
        cluster.room.on_kill.append(self._killed)
        cluster.network.on_served.append(self._served)
        cluster.on_order.append(self._ordered)
        cluster.on_supply.append(self._acted)
        for node in cluster.nodes:
            node.record.on_write.append(partial(self._agent_recorded, node))
        cluster.store.on_attempt.append(self._attempt_recorded)
        cluster.store.on_result.append(self._result_recorded)
        cluster.store.on_create.append(self._job_created)
        cluster.store.on_stop.append(self._stop_recorded)
        self.deleted_before: frozenset[str] = frozenset()
        cluster.store.on_put_back.append(self._store_put_back)
        cluster.truth.on_commit.append(self._committed)

    def _violate(self, rule: str, what: str) -> None:
        self.cluster.history.violate(rule, what)

    def _judged(self, rules: str, job_id: JobId) -> None:
        for rule in rules:
            self.cluster.history.judged(rule, job_id)

    @property
    def now(self) -> float:
        return self.cluster.loop.time()

    # --- as things happen ---------------------------------------------------------------------------------------------

    def _started(self, process: Process) -> None:
        if process.name == "jobmanager":
            self._jm_up_since = self.now
        if isinstance(process.key, DriverKey):
            self._driver_started(process, process.key)
        elif isinstance(process.key, ExecutorKey):
            self._executor_started(process, process.key)

    def _driver_started(self, process: Process, key: DriverKey) -> None:
        self._judged("g", key.job_id)
        if key.attempt > self.written.get(key.job_id, 0):
            self._violate("g", f"attempt {key.attempt} of {key.job_id[:8]} starts before its number is durable")
        if (key.job_id, key.attempt) in self.drivers_started:
            self._violate("g", f"attempt {key.attempt} of {key.job_id[:8]} runs as two processes")
        self.drivers_started.add((key.job_id, key.attempt))
        self.drivers[process.pid] = DriverWatch(process, key, float("-inf"), self.now)

    def _executor_started(self, process: Process, key: ExecutorKey) -> None:
        script = script_of(self.cluster.store.graphs[key.job_id].arguments)
        self._judged("bp" if self.cluster.plan.only_agents else "b", key.job_id)
        self.executors_started[key.job_id, key.attempt] += 1
        if self.executors_started[key.job_id, key.attempt] > script.executors * script.sessions:
            self.cluster.history.count("executor replaced")
            if self.cluster.plan.only_agents and not script.dynamic:
                self._violate("p", f"{process.name} starts in place of another one that has worked")
        owner = self.allocations.setdefault(key.allocation_id, (key.job_id, key.attempt))
        if owner != (key.job_id, key.attempt):
            self._violate("b", f"allocation {key.allocation_id[:8]} given to {owner} and {key.job_id[:8]}")
        for other in self.cluster.machines.executors():
            if other is process or not isinstance(other.key, ExecutorKey):
                continue
            if other.key.allocation_id == key.allocation_id:
                self._violate("b", f"{process.name} starts in the slot of {other.name}, which lives")
            if (other.key.job_id, other.key.attempt, other.key.executor_id) == (
                key.job_id,
                key.attempt,
                key.executor_id,
            ):
                self._violate("b", f"executor id {key.executor_id} of {key.job_id[:8]} lives twice")
            if other.owner == process.owner and set(other.gpus) & set(process.gpus):
                self._violate("b", f"{process.name} and {other.name} both have GPUs of {process.gpus}")
        if len(process.gpus) != script.gpus:
            self._violate("b", f"{process.name} has the GPUs {process.gpus}, and asked for {script.gpus}")
        self._check_capacity(process.owner)

    def _check_capacity(self, owner: str) -> None:
        plan = self.cluster.plan
        executors = [p for p in self.cluster.machines.executors() if p.owner == owner]
        drivers = [watch for watch in self.drivers.values() if watch.process.owner == owner]
        scripts = [self._script_memory(p.key.job_id) for p in executors if p.key is not None]
        cores = sum(core for core, _ in scripts)
        memory = sum(memory for _, memory in scripts) + DRIVER_MEMORY_MB * len(drivers)
        if len(executors) > plan.slots:
            self._violate("b", f"{owner} runs {len(executors)} executors in {plan.slots} slots")
        if cores > plan.cores or memory > plan.memory_mb:
            self._violate("b", f"{owner} gave {cores} of {plan.cores} cores, {memory} of {plan.memory_mb} MiB")
        if len(drivers) > plan.driver_places:
            self._violate("b", f"{owner} runs {len(drivers)} drivers in {plan.driver_places} places")

    def _script_memory(self, job_id: JobId) -> tuple[int, int]:
        graph = self.cluster.store.graphs[job_id]
        script = script_of(graph.arguments)
        return script.cores, script.memory_mb

    def _ended(self, process: Process) -> None:
        watch = self.drivers.pop(process.pid, None)
        if watch is not None and watch.key.attempt < self.attempts.get(watch.key.job_id, 0):
            self.cluster.history.count("driver superseded, then gone")
        self.orphans.pop(process.pid, None)

    def _killed(self, process: Process) -> None:
        """Check (p) when a task manager ends a process."""
        if not self.cluster.plan.only_agents or process.key is None:
            return
        self._judged("p", process.key.job_id)
        if isinstance(process.key, ExecutorKey):
            sparks = self.cluster.sparks.values()
            working = (spark for spark in sparks if spark.process.alive and not spark.has_dismissed(process))
            if any(process in spark.executors.values() for spark in working):
                self._violate("p", f"{process.name} is ended while it works")
        elif isinstance(process.key, DriverKey):
            job = next((job for job in self.cluster.jobs if job.job_id == process.key.job_id), None)
            canceled = job is None or job.cancel_wanted  # without a known job, its submission was not answered yet
            if not canceled and (process.key.job_id, process.key.attempt) not in self.cluster.truth.outcomes:
                self._violate("p", f"{process.name} is ended while it works")

    def _ordered(self, process: Process, request: Message) -> None:
        """Check (n) when JobManager ``process`` sends a request to a task manager."""
        if isinstance(request, ORDERS):
            self._acted(process, type(request).__name__)
        elif self.cluster.store.away_from(process) is not None:
            self.cluster.history.judged("n")

    def _acted(self, process: Process, what: str) -> None:
        """Check (n) when JobManager ``process`` gives an order, or starts or ends a task manager itself."""
        since = self.cluster.store.away_from(process)
        if since is None:
            return
        self.cluster.history.judged("n")
        if self.now - since > FRESH + SLACK:
            self._violate("n", f"{what} from a JobManager that has had no store for {self.now - since:.1f} s")

    def _served(self, source: Party, operation: str, received: float, error: str) -> None:
        if error:
            return
        for watch in self.drivers.values():
            if watch.process.party is source:
                if operation in SPEAKING:
                    watch.last_contact = max(watch.last_contact, received)
                elif operation == "ReportOutcome" and self._succeeded(watch.key.job_id, watch.key.attempt):
                    self._success_acknowledged(watch.key.job_id)

    def _success_acknowledged(self, job_id: JobId) -> None:
        self._judged("m", job_id)
        self.acknowledged.add(job_id)
        canceled = any(job.job_id == job_id and job.cancel_wanted for job in self.cluster.jobs)
        if job_id not in self.cluster.store.recorded and not canceled:
            self._violate("m", f"the success of {job_id[:8]} is acknowledged, and nobody has stored it")

    def _committed(self, job_id: JobId, attempt: int) -> None:
        self._judged("v", job_id)
        for job, newer, _, _ in self.cluster.truth.script_starts:
            if job == job_id and newer > attempt:
                self._violate("v", f"attempt {attempt} of {job_id[:8]} commits, and attempt {newer} has begun")

    def _succeeded(self, job_id: JobId, attempt: int) -> bool:
        outcome = self.cluster.truth.outcomes.get((job_id, attempt))
        return outcome is not None and outcome.kind is None

    def _job_created(self, job_id: JobId, key: str) -> None:
        known = self.created.setdefault(key, job_id)
        if known != job_id:
            self._violate("a", f"one submission became two jobs: {known[:8]} and {job_id[:8]}")

    def _attempt_recorded(self, job_id: JobId, attempt: int) -> None:
        self._judged("g", job_id)
        if attempt <= self.attempts.get(job_id, 0):
            self._violate("g", f"attempt {attempt} of {job_id[:8]} after attempt {self.attempts[job_id]}")
        if job_id in self.results:
            self._violate("e", f"attempt {attempt} of {job_id[:8]}, which has ended")
        if job_id in self.acknowledged:
            self._violate("m", f"attempt {attempt} of {job_id[:8]}, whose driver has reported its success")
        if attempt > 1 and (job_id, attempt - 1) in self.scripts_run:
            self.cluster.history.count("driver lost and restarted")
        self.attempts[job_id] = attempt
        is_adopted = attempt <= self.written.get(job_id, 0)
        self.written[job_id] = max(attempt, self.written.get(job_id, 0))
        for watch in self.drivers.values():
            if watch.key.job_id != job_id or is_adopted:
                continue
            self.cluster.history.count("attempt while an older driver lives")
            self._judged("d", job_id)
            silent = self.now - max(watch.last_contact, self._jm_up_since)
            if silent < self._lease - SLACK:
                old = f"{watch.process.name}, silent for {silent:.1f} s, lives"
                self._violate("d", f"attempt {attempt} of {job_id[:8]} begins while {old}")

    def _store_put_back(self) -> None:
        self.cluster.history.count("store put back")
        self._was_put_back = True
        self.deleted_before = frozenset(self.cluster.truth.deleted)  # what an older copy does not know
        self.attempts.clear()
        self.attempts |= {job_id: handle.attempt for job_id, handle in self.cluster.store.disk.jobs.items()}
        self.pointers.clear()
        self.running_in.clear()

    def _result_recorded(self, result: JobResult) -> None:
        known = self.results.get(result.job_id)
        if known is not None:
            if known != result:
                self._violate("e", f"two results of {result.name}: {known.status.value} and {result.status.value}")
            return
        self.results[result.job_id] = result
        self.cluster.history.count(f"result {result.status.value}")
        self._check_truth(result)

    def _check_truth(self, result: JobResult) -> None:
        self._judged("e", result.job_id)
        truth = self.cluster.truth
        last = self.attempts.get(result.job_id, 0)
        outcome = truth.outcomes.get((result.job_id, last))
        succeeded = outcome is not None and outcome.kind is None
        named = (result.name, result.job_id)  # a result has the job's id as name if the graph could not be read
        job = next((job for job in self.cluster.jobs if job.name in named or job.job_id in named), None)
        if result.status is JobStatus.FINISHED:
            if not succeeded and result.job_id not in self.cluster.store.stopped:
                self._violate("e", f"{result.name} FINISHED, but attempt {last} ended with {outcome}")
            if result.exit_code != 0:
                self._violate("e", f"{result.name} FINISHED with exit code {result.exit_code}")
        elif result.status is JobStatus.CANCELED:
            if job is None or not job.cancel_wanted:
                self._violate("e", f"{result.name} CANCELED, and nobody had asked for it")
        elif result.status is JobStatus.FAILED:
            recorded = result.attempts[-1].outcome if result.attempts else None
            if recorded is not None and recorded.kind is None:
                self._violate("e", f"{result.name} FAILED, but its last attempt succeeded")
            if outcome is not None and outcome.exit_code == SIGTERM_CODE:
                self._violate("e", f"{result.name} FAILED, because its driver was ended from outside")
            if recorded is not None and recorded.message == NOT_WANTED and not (job is None or job.cancel_wanted):
                self._violate("e", f"{result.name} FAILED, because the start of its driver was called off")
            if recorded is not None and recorded.kind is FailureKind.SCRIPT and recorded != outcome:
                self._violate("e", f"{result.name} FAILED with {recorded}, but its script ended with {outcome}")
        else:
            self._violate("e", f"{result.name}: {result.status.value} is no final state")

    # --- now and then -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Check the census. Call every TICK seconds."""
        if self.cluster.network.conditions.loss > 0:
            self._network_bad_at = self.now
        self.cluster.blocklist.tick()
        self._check_scripts()
        self._ticks += 1
        if self._ticks % TICKS_PER_LOOK_INSIDE == 0:
            self._check_invariants()
        for watch in self.drivers.values():
            if not self._speaks(watch.process):
                watch.impaired_at = self.now
        self._check_side_by_side()
        self._check_useless_drivers()
        self._check_orphans()
        self._dismissals.tick(TICK)
        if self.namespaces.is_limited and not self._was_put_back:
            self.namespaces.tick(self._known_drivers())
        self._stored.tick()
        self._check_blobs()
        self._check_pointers()

    def _check_invariants(self) -> None:
        """Check the invariants of the machines inside the actors."""
        cluster = self.cluster
        where = "jobmanager"
        try:
            if cluster.jm_process is not None and cluster.jm_process.alive and cluster.jm_service is not None:
                cluster.jm_service.check_invariants()
            for node in cluster.nodes:
                if node.agent is not None and node.agent.alive and node.service is not None:
                    where = node.id
                    node.service.executor.table.check_invariants()
            for watch in self.drivers.values():
                where = watch.process.name
                cluster.room.drivers[watch.process.pid].service.master.pool.check_invariants()
        except AssertionError as error:
            self._violate("invariant", f"{where}: {error}")

    def _speaks(self, driver: Process) -> bool:
        """True if the driver and the JobManager can exchange messages now, and the JobManager may refuse the driver.

        A JobManager without its store refuses nobody, see (n) and (y).
        """
        jm = self.cluster.jm_process
        store = self.cluster.store
        if jm is None or not jm.alive or jm.frozen or driver.frozen or store.away_from(jm) is not None:
            return False
        if store.own is not None:
            return False
        network = self.cluster.network
        return network.passes(driver.party, jm.party) and network.passes(jm.party, driver.party)

    def _is_mute(self, watch: DriverWatch) -> bool:
        """True if the driver hangs before its JobMaster is up: no script runs there, and only its agent can end it."""
        arguments = self.cluster.store.graphs[watch.key.job_id].arguments
        return watch.key.attempt <= script_of(arguments).mute_attempts

    def _check_scripts(self) -> None:
        starts = self.cluster.truth.script_starts
        stopped = self.cluster.store.stopped
        for job_id in self.cluster.truth.released:
            self._judged("l", job_id)
        for job_id in self.cluster.truth.released - stopped.keys():
            self._violate("l", f"the script of {job_id[:8]} went on, and that the job has stopped is not durable")
        for job_id, attempt, seconds, pid in starts[self._checked_scripts :]:
            self._judged("dgl" if job_id in stopped else "dg", job_id)
            if seconds > stopped.get(job_id, seconds):
                self._violate("l", f"attempt {attempt} of {job_id[:8]} started after the job was stopped for good")
            if (job_id, attempt) in self.scripts_run:
                self._violate("g", f"the script of attempt {attempt} of {job_id[:8]} started twice")
            self.scripts_run.add((job_id, attempt))
            watch = self.drivers.get(pid)
            impaired = watch is None or seconds - watch.impaired_at < self._driver_bound
            if attempt < self.attempts.get(job_id, 0) and not impaired:
                self._violate("d", f"the script of attempt {attempt} of {job_id[:8]} started after its successor")
        self._checked_scripts = len(starts)

    def _stop_recorded(self, job_id: JobId, trigger_id: str) -> None:
        truth = self.cluster.truth
        self._judged("l", job_id)
        if truth.savepoints[trigger_id] <= truth.discarded[trigger_id]:
            self._violate("l", f"{job_id[:8]} is stopped for good, and its savepoint was not written")

    def _agent_recorded(self, node: TaskManagerNode, record: AgentRecord) -> None:
        before = self.kept.get(node.id, frozenset())
        kept = frozenset((told.job_id, told.attempt) for told in record.outcomes if told.outcome.kind is None)
        self.kept[node.id] = kept
        for job_id, _ in sorted(before):
            self._judged("m", job_id)
        for job_id, attempt in sorted(before - kept):
            if job_id not in self.cluster.store.recorded and attempt == self.attempts.get(job_id):
                self._violate("m", f"{node.id} forgets the success of {job_id[:8]}.{attempt}, and nobody stored it")

    def _unimpaired_for(self, watch: DriverWatch) -> float:
        return self.now - max(watch.impaired_at, watch.process.started, self._network_bad_at, self._jm_up_since)

    def _check_side_by_side(self) -> None:
        living = Counter(watch.key.job_id for watch in self.drivers.values())
        for job_id, count in living.items():
            if count < 2:
                continue
            well = [w for w in self.drivers.values() if w.key.job_id == job_id]
            well = [w for w in well if self._unimpaired_for(w) > self._lease + SLACK and not self._is_mute(w)]
            if len(well) > 1:
                names = " and ".join(watch.process.name for watch in well)
                self._violate("d", f"{names} go on side by side")

    def _known_drivers(self) -> Iterator[Process]:
        """Yield the drivers that run the script of a newest attempt, and that the JobManager cannot take for lost."""
        for watch in self.drivers.values():
            key, process = watch.key, watch.process
            is_newest = key.attempt == self.attempts.get(key.job_id) and key.job_id not in self.results
            if not is_newest or process.outcome is not None or (key.job_id, key.attempt) not in self.scripts_run:
                continue
            began = process.started
            was_never_impaired = watch.impaired_at <= began and max(self._network_bad_at, self._jm_up_since) <= began
            if was_never_impaired or self._unimpaired_for(watch) > self._lease + SLACK:
                yield process

    def unmet_guarantees(self) -> list[str]:
        """Describe the namespaces with fewer slots than they are guaranteed, see (x)."""
        return self.namespaces.unmet(self._known_drivers())

    def above_quotas(self) -> list[str]:
        """Describe the namespaces with more slots than their quota, see (w)."""
        return [] if self._was_put_back else self.namespaces.above(self._known_drivers())

    def _check_useless_drivers(self) -> None:
        for watch in self.drivers.values():
            over = watch.key.attempt < self.attempts.get(watch.key.job_id, 0) or watch.key.job_id in self.results
            if over:
                self._judged("c", watch.key.job_id)
            if over and self._speaks(watch.process) and self._agent_works(watch.process.owner):
                watch.useless_seconds += TICK
                if watch.useless_seconds > self._driver_bound:
                    self._violate("c", f"{watch.process.name} lives on, though its attempt is over")
                    watch.useless_seconds = float("-inf")

    def _check_orphans(self) -> None:
        living = {(watch.key.job_id, watch.key.attempt) for watch in self.drivers.values()}
        restarted = {node.id for node in self.cluster.nodes if self.agent_lives.get(node.id) != node.lives}
        self.agent_lives = {node.id: node.lives for node in self.cluster.nodes}
        for executor in self.cluster.machines.executors():
            key = executor.key
            if executor.owner in restarted:  # a restarted agent must detect the orphan again
                self.orphans.pop(executor.pid, None)
            if key is None or (key.job_id, key.attempt) in living or not self._agent_works(executor.owner):
                continue
            self._judged("c", key.job_id)
            seconds = self.orphans.get(executor.pid, 0.0) + TICK
            self.orphans[executor.pid] = seconds
            if seconds > self._orphan_bound:
                self._violate("c", f"{executor.name} on {executor.owner} lives on without its driver")
                self.orphans[executor.pid] = float("-inf")

    def _agent_works(self, owner: str) -> bool:
        agent = next(node.agent for node in self.cluster.nodes if node.id == owner)
        return agent is not None and agent.alive and not agent.frozen

    # --- what the JobManager shows ------------------------------------------------------------------------------------

    def look(self, jobs: list[JobView], task_managers: list[TaskManagerView]) -> None:
        """Check one view of jobs and task managers that the JobManager shows."""
        listed = {view.job_id for view in jobs}
        for view in jobs:
            self._check_shown(view)
            self._dismissals.look(view)
        for job in self.cluster.jobs:
            if job.job_id is not None and job.job_id not in listed:
                self._violate("a", f"{job.name} was accepted, and is not known any more")
        for manager in task_managers:
            self._check_report(manager)

    def _check_shown(self, view: JobView) -> None:
        before = self.shown.get(view.job_id)
        if view.status is JobStatus.RUNNING:
            lives = (self.cluster.jm_lives, view.attempt)
            if self.running_in.setdefault(view.job_id, lives) != lives:
                if self.running_in[view.job_id][1] == view.attempt:
                    self.cluster.history.count("running job kept through a new JobManager")
                self.running_in[view.job_id] = lives
        if before is not None and before.is_globally_terminal and view.status is not before:
            self._violate("e", f"{view.name} was {before.value} and is {view.status.value}")
        self.shown[view.job_id] = view.status
        self.waiting[view.job_id] = view.waiting
        if view.status.is_globally_terminal:
            result = self.results.get(view.job_id)
            if result is None:
                self._violate("e", f"{view.name} is shown as {view.status.value} before that is durable")
            elif result.status is not view.status:
                self._violate("e", f"{view.name} is {result.status.value}, but shown as {view.status.value}")

    def _check_report(self, manager: TaskManagerView) -> None:
        allocations = manager.report.allocations
        indexes = [allocation.slot_index for allocation in allocations]
        if len(set(indexes)) != len(indexes):
            self._violate("b", f"{manager.info.id} has given a slot twice: {indexes}")
        cores = sum(allocation.profile.cores for allocation in allocations)
        memory = sum(a.profile.memory_mb for a in allocations) + sum(d.memory_mb for d in manager.report.drivers)
        if cores > manager.info.total.cores or memory > manager.info.total.memory_mb:
            self._violate("b", f"{manager.info.id} has given {cores} cores and {memory} MiB of {manager.info.total}")

    # --- when it is quiet ---------------------------------------------------------------------------------------------

    def unsettled(self) -> list[str]:
        """Describe the jobs that are neither ended nor running as they should."""
        missing = []
        for job in self.cluster.jobs:
            if job.rejected:
                continue
            if job.job_id is None:
                missing.append(f"{job.name}: submission not answered")
            elif job.job_id not in self.results and not (self._may_run_on(job.script.seconds, job.cancel_wanted)):
                missing.append(f"{job.name}: {self._status(job.job_id)}, should have ended")
            elif job.job_id not in self.results and not self._runs(job.job_id):
                missing.append(f"{job.name}: {self._status(job.job_id)}, should run")
        return missing

    def _status(self, job_id: JobId) -> str:
        status = self.shown.get(job_id)
        waiting = f" (waits for: {self.waiting[job_id]})" if self.waiting.get(job_id) else ""
        return f"attempt {self.attempts.get(job_id, 0)} {'unknown' if status is None else status.value}{waiting}"

    @staticmethod
    def _may_run_on(seconds: float | None, cancel_wanted: bool) -> bool:
        return seconds is None and not cancel_wanted

    def _runs(self, job_id: JobId) -> bool:
        """True if the job is shown as RUNNING and its newest attempt's driver lives and has an executor."""
        if self.shown.get(job_id) is not JobStatus.RUNNING:
            return False
        attempt = self.attempts.get(job_id, 0)
        return any(
            spark.executors
            for spark in self.cluster.sparks.values()
            if spark.process.alive and spark.process.key == DriverKey(job_id=job_id, attempt=attempt)
        )

    def _check_blobs(self) -> None:
        store = self.cluster.store
        for job_id in store.jobs:
            for artefact in store.graphs[job_id].artefacts:
                if not self.cluster.blobs.is_kept(job_id, permanent(artefact.sha256)):
                    self._violate("h", f"{artefact.name} of job {job_id[:8]}, which has not ended, is lost")

    def _check_pointers(self) -> None:
        for job_id, handle in self.cluster.store.disk.jobs.items():
            if not handle.pointers:
                continue
            pointers = msgspec.json.decode(handle.pointers, type=JobPointers)
            self._stored.made(job_id, pointers)
            for savepoint in pointers.savepoints:
                is_gone = self.cluster.truth.deleted[savepoint.trigger_id] > 0
                if is_gone and not savepoint.retired_ms and savepoint.trigger_id not in self.deleted_before:
                    self._violate("k", f"the files of {savepoint.path} are gone, and it is recorded as usable")
            if not pointers.queries:
                continue
            self._judged("k", job_id)
            batch, (attempt, before) = pointers.queries[-1].batch_id, self.pointers.get(job_id, (0, -1))
            if batch >= self.cluster.truth.commits[job_id]:
                self._violate("k", f"batch {batch} of {job_id[:8]} is recorded, and was not committed")
            if batch < before or not attempt <= pointers.attempt <= self.attempts[job_id]:
                self._violate("k", f"batch {batch} of attempt {pointers.attempt} of {job_id[:8]} after batch {before}")
            if pointers.attempt > attempt > 0:
                self.cluster.history.count("checkpoint reported by the next attempt")
            self.pointers[job_id] = (pointers.attempt, batch)

    def not_free(self, nodes: list[TaskManagerNode], views: list[TaskManagerView]) -> list[str]:
        """Describe what is still held although all jobs have ended."""
        held = [f"{process.name} lives" for process in self.cluster.machines.drivers()]
        held += [f"{process.name} lives" for process in self.cluster.machines.executors()]
        known = {view.info.id: view for view in views}
        for node in nodes:
            view = known.get(node.id)
            if view is None or node.info is None or view.info.instance != node.info.instance:
                held.append(f"{node.id} is not registered")
            elif view.report.allocations or view.report.drivers:
                held.append(
                    f"{node.id} reports {len(view.report.allocations)} slots, {len(view.report.drivers)} drivers"
                )
            elif view.free_slots != view.info.slots or view.free_driver_places != view.info.driver_places:
                held.append(
                    f"the JobManager counts {view.free_slots} free slots, {view.free_driver_places} places on {node.id}"
                )
            elif view.free_resources != view.info.total:
                held.append(f"the JobManager counts {view.free_resources} free on {node.id}")
        return held
