"""Conversion of views of the cluster and its task managers to bodies of the REST API. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

import emberkeep
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.cluster import JobManagerGateway, Stranger, TaskManagerView, UsageView
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.messages.task_manager_reports import DriverReport
from emberkeep.protocol.rest_cluster import ClusterExtension, ClusterOverview, TaskManagerOfAnotherStore
from emberkeep.protocol.rest_task_managers import (
    DriverOnTaskManager,
    EvacuationInfo,
    Hardware,
    LocalStateOfJob,
    Resources,
    SlotHistory,
    SlotInfo,
    SlotSample,
    SlotsKept,
    StandbyCounters,
    StateGatewayCounters,
    TaskManagerDetails,
    TaskManagerExtension,
    TaskManagerState,
    TaskManagerSummary,
    UsageInfo,
    UsageSample,
)
from emberkeep.rest.ports import StorageCondition
from emberkeep.slots.model import Allocation, ResourceProfile
from emberkeep.usage.history import Sample

MIB = 1024**2
# Flink's tools show this field as the cluster's version.
FLINK_VERSION = f"emberkeep-{emberkeep.__version__}"


@dataclass(frozen=True)
class JobManagerCondition:
    """What this JobManager reports about itself. ``problem`` is "" in normal operation."""

    problem: str
    encryption: str
    certificate_expires_ms: int | None


def cluster_overview(
    gateway: JobManagerGateway,
    jobs: Sequence[JobBrief],
    task_managers: Sequence[TaskManagerView],
    blocklist_problem: str,
    storage: StorageCondition,
    own: JobManagerCondition,
) -> ClusterOverview:
    """Return counts over all jobs and task managers. As in Flink, every job that has not ended counts as running."""
    counts = Counter(job.status for job in jobs)
    return ClusterOverview(
        taskmanagers=len(task_managers),
        slots_total=sum(view.info.slots for view in task_managers),
        slots_available=sum(view.free_slots for view in task_managers),
        jobs_running=sum(count for status, count in counts.items() if not status.is_globally_terminal),
        jobs_finished=counts[JobStatus.FINISHED],
        jobs_cancelled=counts[JobStatus.CANCELED],
        jobs_failed=counts[JobStatus.FAILED],
        flink_version=FLINK_VERSION,
        flink_commit="",
        emberkeep=ClusterExtension(
            version=emberkeep.__version__,
            epoch=gateway.epoch(),
            job_manager=gateway.address(),
            started=gateway.started_ms(),
            jobs_by_status={status: counts[status] for status in JobStatus},
            driver_places_total=sum(view.info.driver_places for view in task_managers),
            driver_places_available=sum(view.free_driver_places for view in task_managers),
            taskmanagers_away=sum(view.away for view in task_managers),
            taskmanagers_of_another_store=of_another_store(gateway.strangers()),
            problem=own.problem,
            blocklist_problem=blocklist_problem,
            storage_problem=storage.problem,
            storage_unneeded=storage.unneeded,
            encryption=own.encryption,
            certificate_expires=own.certificate_expires_ms,
        ),
        taskmanagers_blocked=sum(view.blocked for view in task_managers),
        slots_free_and_blocked=sum(view.free_slots for view in task_managers if view.blocked),
    )


def of_another_store(others: Iterable[Stranger]) -> tuple[TaskManagerOfAnotherStore, ...]:
    return tuple(
        TaskManagerOfAnotherStore(
            id=other.id, path=other.address, node_id=other.node_id, pid=other.pid, store=other.lineage
        )
        for other in others
    )


def task_manager_summary(view: TaskManagerView) -> TaskManagerSummary:
    """Return a task manager's entry in the list of all task managers."""
    info = view.info
    return TaskManagerSummary(
        id=info.id,
        path=info.address,
        data_port=_port(info.address),
        jmx_port=-1,
        time_since_last_heartbeat=view.last_heartbeat_ms,
        slots_number=info.slots,
        free_slots=view.free_slots,
        total_resource=_resources(info.total),
        free_resource=_resources(view.free_resources),
        hardware=Hardware(
            cpu_cores=info.total.cores,
            physical_memory=info.total.memory_mb * MIB,
            free_memory=view.free_resources.memory_mb * MIB,
        ),
        emberkeep=_extension(view),
        blocked=view.blocked,
    )


def task_manager_details(view: TaskManagerView) -> TaskManagerDetails:
    """Return one task manager with its allocated slots, ordered by slot index."""
    summary = task_manager_summary(view)
    allocations = sorted(view.report.allocations, key=lambda allocation: allocation.slot_index)
    return TaskManagerDetails(
        **{name: getattr(summary, name) for name in summary.__struct_fields__},
        allocated_slots=[_slot(allocation) for allocation in allocations],
    )


def _extension(view: TaskManagerView) -> TaskManagerExtension:
    info, report = view.info, view.report
    return TaskManagerExtension(
        state=TaskManagerState.AWAY if view.away else TaskManagerState.ALIVE,
        instance=info.instance,
        host=info.host,
        node_id=info.node_id,
        pid=info.pid,
        started=info.started_ms,
        python=info.runtime.python,
        spark=info.runtime.spark,
        java=info.java_major,
        driver_places_total=info.driver_places,
        driver_places_available=view.free_driver_places,
        drivers=[_driver(driver) for driver in report.drivers],
        disk_free_mb=report.disk_free_mb,
        memory_used_mb=report.memory_used_mb,
        cpu_percent=report.cpu_percent,
        adopted=report.adopted,
        local_state=[
            LocalStateOfJob(jid=state.job_id, files=state.files, size=state.size) for state in report.local_state
        ],
        state_gateway=None
        if report.state_gateway is None
        else StateGatewayCounters(**msgspec.structs.asdict(report.state_gateway)),
        evacuation=None if view.evacuation is None else EvacuationInfo(**msgspec.structs.asdict(view.evacuation)),
        standbys=None if report.standbys is None else StandbyCounters(**msgspec.structs.asdict(report.standbys)),
        version=info.release,
        disk_total_mb=report.disk_total_mb,
        memory_total_mb=report.memory_total_mb,
        disk_full=view.disk_full,
        cgroups=info.cgroups,
        slots_kept=[
            SlotsKept(jid=job_id, slots=slots) for job_id, slots in Counter(slot.job_id for slot in view.kept).items()
        ],
    )


def usage_info(view: UsageView) -> UsageInfo:
    """Return the history of a task manager."""
    return UsageInfo(
        since=view.since_ms or None,
        interval=view.step_ms,
        memory_total_mb=view.memory_total_mb,
        disk_total_mb=view.disk_total_mb,
        samples=[_usage_sample(sample) for sample in view.samples],
        earlier_interval=view.earlier_step_ms,
        earlier=[_usage_sample(sample) for sample in view.earlier],
    )


def slot_history(view: UsageView) -> SlotHistory:
    """Return the history of all slots."""
    return SlotHistory(
        since=view.since_ms or None,
        interval=view.step_ms,
        samples=[_slot_sample(sample) for sample in view.samples],
        earlier_interval=view.earlier_step_ms,
        earlier=[_slot_sample(sample) for sample in view.earlier],
    )


def _slot_sample(sample: Sample) -> SlotSample:
    return SlotSample(time=sample.time_ms, slots=sample.slots, slots_taken=sample.slots_taken)


def _usage_sample(sample: Sample) -> UsageSample:
    return UsageSample(
        time=sample.time_ms,
        cpu_percent=sample.cpu_percent,
        memory_used_mb=sample.memory_used_mb,
        disk_free_mb=sample.disk_free_mb,
        slots=sample.slots,
        slots_taken=sample.slots_taken,
    )


def _driver(driver: DriverReport) -> DriverOnTaskManager:
    return DriverOnTaskManager(
        jid=driver.job_id,
        attempt=driver.attempt,
        state=driver.state,
        pid=driver.pid,
        memory_mb=driver.memory_mb,
    )


def _slot(allocation: Allocation) -> SlotInfo:
    return SlotInfo(
        job_id=allocation.job_id,
        attempt=allocation.attempt,
        index=allocation.slot_index,
        resource=_resources(allocation.profile),
        addresses={each.name: list(each.addresses) for each in allocation.addresses},
    )


def _resources(profile: ResourceProfile) -> Resources:
    return Resources(
        cpu_cores=float(profile.cores),
        task_heap_memory=profile.memory_mb,
        extended_resources={each.name: float(each.amount) for each in profile.custom},
    )


def _port(address: str) -> int:
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else -1
