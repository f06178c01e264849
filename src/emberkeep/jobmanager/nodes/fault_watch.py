"""Turns process failures that the ResourceManager learns of into evidence about nodes; see ``blocklist.detection``."""

from __future__ import annotations

from collections.abc import Collection

from emberkeep.base.configuration.options.blocklist import (
    DETECTION_DURATION,
    DETECTION_JOBS,
    DETECTION_MAX_SHARE,
    DETECTION_PROOF,
    DETECTION_RESPECT,
    DETECTION_WINDOW,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blocklist.detection import DetectionLimits, FaultDetector, Suspicion
from emberkeep.blocklist.model import BlockAction, BlockedNode, Place, PlaceKind, Removal
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.blocklist.symptoms import symptom_of
from emberkeep.jobs.model import ExceptionEntry, FailureKind
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState
from emberkeep.slots.model import TaskManagerInfo

NODES_KEPT = 20_000  # task managers whose node is remembered, lost ones included
JOBS_KEPT = 20_000  # jobs whose exceptions are remembered
NOT_STARTED = "could not be started"  # how the slot pool describes an executor without a process


class FaultWatch:
    """Feeds the fault detector. Belongs to the ResourceManager. Times are monotonic seconds, except ``now_ms``.

    A job's first report to this leader may contain old failures, so it does not count as evidence. ``removals``: the
    removals in the blocklist that this leader has read. They show which nodes operators have unblocked, and when:
    for the rest of the pause after that, these nodes are not suspected.
    """

    def __init__(self, configuration: Configuration, removals: Collection[Removal], now: float, now_ms: int) -> None:
        self._seconds = configuration[DETECTION_DURATION]
        self._detector = FaultDetector(
            DetectionLimits(
                witnesses=configuration[DETECTION_JOBS],
                max_share=configuration[DETECTION_MAX_SHARE],
                window=configuration[DETECTION_WINDOW],
                proof=configuration[DETECTION_PROOF],
                respect=configuration[DETECTION_RESPECT],
            )
        )
        self._nodes: dict[TaskManagerId, str] = {}  # node of each task manager, newest last
        self._told: dict[JobId, tuple[int, tuple[ExceptionEntry, ...]]] = {}  # attempt and its exceptions, newest last
        for removal in removals:
            if removal.by_hand:
                ago = max(0, now_ms - removal.at_ms) / 1000  # the previous leader's clock may have been ahead
                self.unblocked(removal.place, now - ago)

    def stands(self, info: TaskManagerInfo) -> None:
        """Note on which node a task manager runs."""
        self._nodes.pop(info.id, None)
        _remember(self._nodes, info.id, info.node_id, NODES_KEPT)

    def take(self, job_id: JobId, attempt: int, status: JobMasterStatus, now: float) -> None:
        """Take a JobMaster's status: executors that it has lost, and nodes where its executors run."""
        known = self._told.pop(job_id, None)
        _remember(self._told, job_id, (attempt, status.exceptions), JOBS_KEPT)
        if known is not None:
            before = known[1] if known[0] == attempt else ()
            for entry in status.exceptions:
                if entry not in before:
                    self._executor_lost(job_id, entry, now)
        running = {
            self._nodes[executor.task_manager]
            for executor in status.executors
            if executor.registered and not executor.away and executor.task_manager in self._nodes
        }
        self._detector.runs(job_id, running, now)

    def _executor_lost(self, job_id: JobId, entry: ExceptionEntry, now: float) -> None:
        node_id = self._nodes.get(TaskManagerId(entry.task_manager))
        symptom = symptom_of(f"{entry.message}\n{entry.traceback}", started=NOT_STARTED not in entry.message)
        if node_id is not None and symptom is not None:
            self._detector.failed(job_id, node_id, symptom, now)

    def drivers_ended(self, info: TaskManagerInfo, drivers: Collection[DriverReport], now: float) -> None:
        """Take drivers whose state is new in a task manager's report. Only those that have failed matter."""
        for driver in drivers:
            outcome = driver.outcome
            if driver.state is not ProcessState.EXITED or outcome is None or outcome.kind is None:
                continue
            started = outcome.kind is not FailureKind.SETUP
            symptom = symptom_of(f"{outcome.message}\n{outcome.traceback}", started=started)
            if symptom is not None and outcome.kind is not FailureKind.SCRIPT:
                self._detector.failed(driver.job_id, info.node_id, symptom, now)

    def succeeded(self, job_id: JobId) -> None:
        """Note that the job has succeeded."""
        self._detector.succeeded(job_id)

    def unblocked(self, place: Place, at: float) -> None:
        """Note that an operator unblocked ``place`` at ``at`` (monotonic seconds)."""
        if place.kind is PlaceKind.NODE:
            self._detector.unblocked(place.id, at)

    def entries(self, nodes: Collection[str], places: BlockedPlaces, now: float, now_ms: int) -> list[BlockedNode]:
        """Return the entries to add to the blocklist now. ``nodes``: all that have a registered task manager."""
        return [self._entry(suspicion, now_ms) for suspicion in self._detector.decide(nodes, places.nodes, now)]

    def _entry(self, suspicion: Suspicion, now_ms: int) -> BlockedNode:
        return BlockedNode(
            id=suspicion.node_id,
            action=BlockAction.MARK_BLOCKED,
            start_ms=now_ms,
            end_ms=now_ms + round(self._seconds * 1000),
            causes=(suspicion.cause,),
        )


def _remember(known: dict, key: str, value: object, most: int) -> None:  # type: ignore[type-arg]
    """Set an entry and drop the oldest ones beyond ``most``."""
    known[key] = value
    while len(known) > most:
        del known[next(iter(known))]
