"""``emberkeep cluster status`` and the views of task managers."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.cli.cluster.other_store import print_of_another_store
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say_error
from emberkeep.cli.tables import OutputFormat, print_fields, print_json, print_table
from emberkeep.cli.wording import SHORT_ID, byte_count, counted, job_table, memory, timestamp
from emberkeep.client.clusters.cluster_file import ClusterRecord
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.errors import NoCluster
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_cluster import ClusterExtension, ClusterOverview
from emberkeep.protocol.rest_jobs import JobDetails
from emberkeep.protocol.rest_task_managers import StandbyCounters, TaskManagerDetails, TaskManagerSummary

TASK_MANAGER_COLUMNS = (
    "ID",
    "STATE",
    "NODE",
    "SLOTS FREE",
    "DRIVERS",
    "MEMORY FREE",
    "STANDBYS READY",
    "PYTHON",
    "SPARK",
    "LAST HEARTBEAT",
)
_SHOWN_JOBS = 10
_SOON_MS = 14 * 86_400_000  # before its end, a certificate needs attention

Picture = tuple[ClusterOverview, list[TaskManagerSummary], list[JobDetails]]


def show_status(record: ClusterRecord | None, endpoint: Endpoint | None, output: OutputFormat) -> int:
    """Print the processes of the local cluster and the JobManager's view of the cluster; return the exit code.

    Raises NoCluster, NotAuthorised.
    """
    if record is None and endpoint is None:
        raise NoCluster
    picture: Picture | None = None
    page = ""
    problem: RetryLater | None = None
    # Show the local processes only if the endpoint is that of the local cluster.
    local = record if record is not None and (endpoint is None or endpoint.url == record.url) else None
    if endpoint is not None:
        try:
            picture, page = asyncio.run(_read(endpoint, local if output is OutputFormat.TABLE else None))
        except RetryLater as error:
            problem = error
    if output is OutputFormat.JSON:
        print_json(_as_json(local, picture))
    else:
        _print(local, picture, page)
    if picture is None:
        dead = "its JobManager is not running"
        say_error(problem.message if problem else dead, "start what is missing with `emberkeep cluster up`")
        return ExitCode.UNREACHABLE
    if local is not None and not all(daemon.is_running for daemon in local.daemons):
        say_error("not all processes of the cluster run", "start what is missing with `emberkeep cluster up`")
        return ExitCode.FAILED
    return ExitCode.OK


async def _read(endpoint: Endpoint, record: ClusterRecord | None) -> tuple[Picture, str]:
    """Return the JobManager's view, and how to log in to the web page of the cluster ``record``, if there is one."""
    async with RestClient(endpoint) as client:
        picture = await client.overview(), await client.task_managers(), await client.jobs()
        return picture, "" if record is None else await web_page(client, record)


def _as_json(record: ClusterRecord | None, picture: Picture | None) -> dict[str, Any]:
    processes = [
        {"name": daemon.name, "pid": daemon.identity.pid, "running": daemon.is_running, "directory": daemon.directory}
        for daemon in (record.daemons if record else ())
    ]
    overview, task_managers, jobs = picture or (None, [], [])
    return {"processes": processes, "overview": overview, "taskmanagers": task_managers, "jobs": jobs}


async def web_page(client: RestClient, record: ClusterRecord) -> str:
    """Return the leader's address at which a browser logs in, and a line that says how long the address is valid."""
    try:
        link = await client.login_link()
    except Absent:  # a JobManager of release 0.1.0, whose page asks for the token
        return record.url
    minutes = link.valid_for // 60_000
    address = record.url_of(link.job_manager) + link.path
    return f"{address}\nworks once, within {minutes} minutes; `emberkeep cluster status` prints another"


def _print(record: ClusterRecord | None, picture: Picture | None, page: str) -> None:
    if picture is not None:
        overview = picture[0]
        own = overview.emberkeep
        free = overview.slots_available
        print_fields(
            [
                ("JobManager", f"{own.job_manager}, version {own.version}, leader since {timestamp(own.started)}"),
                ("Web page", page),
                ("Attention", own.problem),
                ("Task managers", str(overview.taskmanagers)),
                ("Blocklist", f"cannot be read: {own.blocklist_problem}" if own.blocklist_problem else ""),
                ("Slots", f"{overview.slots_total}, {free} free"),
                ("Driver places", f"{own.driver_places_total}, {own.driver_places_available} free"),
                ("Encryption", _encryption(own)),
                ("Storage", _storage(own.storage_problem, own.storage_unneeded)),
                (
                    "Jobs",
                    ", ".join(f"{n} {s.value}" for s, n in own.jobs_by_status.items() if n) or "none yet",
                ),
            ]
        )
    if record is not None:
        print_line("\nProcesses" if picture else "Processes")
        print_table(
            ("NAME", "PID", "STATE", "DIRECTORY"),
            [
                (d.name, str(d.identity.pid), "running" if d.is_running else "not running", d.directory)
                for d in record.daemons
            ],
        )
    if picture is not None and picture[1]:
        print_line("\nTask managers")
        print_table(TASK_MANAGER_COLUMNS, [task_manager_row(task_manager) for task_manager in picture[1]])
    if picture is not None:
        print_of_another_store(picture[0].emberkeep.taskmanagers_of_another_store)
    if picture is not None and picture[2]:
        print_line("\nJobs, newest first")
        print_table(*job_table(picture[2][:_SHOWN_JOBS]))
        if len(picture[2]) > _SHOWN_JOBS:
            print_line(f"… {len(picture[2]) - _SHOWN_JOBS} older jobs: `emberkeep list` shows all")


def _encryption(own: ClusterExtension) -> str:
    if own.encryption == "none":
        return "none: a process that takes a server's port gets the token (security.encryption)"
    if own.certificate_expires is None:
        return "TLS; the JobManager cannot read its certificate"
    soon = own.certificate_expires - time.time() * 1000 < _SOON_MS
    warning = "; it ends soon: renew it (security.tls.certificate)" if soon else ""
    return f"TLS, certificate until {timestamp(own.certificate_expires)}{warning}"


def _storage(problem: str, unneeded: int) -> str:
    """Return what an operator must decide about the storage; "" if nothing."""
    if not problem:
        return ""
    return f"nothing is deleted there: {problem}; {counted(unneeded, 'piece')} of data without a known job"


def task_manager_row(task_manager: TaskManagerSummary) -> tuple[str, ...]:
    """Return the task manager's row in ``emberkeep taskmanagers``."""
    own = task_manager.emberkeep
    free, total = task_manager.free_resource.task_heap_memory, task_manager.total_resource.task_heap_memory
    return (
        task_manager.id,
        own.state.value,
        own.node_id,
        f"{task_manager.free_slots} of {task_manager.slots_number}",
        f"{own.driver_places_total - own.driver_places_available} of {own.driver_places_total}",
        f"{memory(free)} of {memory(total)}",
        _standbys(own.standbys),
        own.python,
        own.spark,
        timestamp(task_manager.time_since_last_heartbeat),
    )


def _standbys(standbys: StandbyCounters | None) -> str:
    """Return which standby processes are ready; "" if the task manager keeps none."""
    if standbys is None:
        return ""
    return (
        f"{standbys.drivers} of {counted(standbys.drivers_kept, 'driver')}, "
        f"{standbys.executors} of {counted(standbys.executors_kept, 'executor')}"
    )


def print_task_manager(details: TaskManagerDetails) -> None:
    """Print one task manager as readable text."""
    own = details.emberkeep
    free, total = details.free_resource, details.total_resource
    print_fields(
        [
            ("Task manager", f"{details.id} (instance {own.instance[:SHORT_ID]})"),
            ("State", own.state.value),
            ("Address", details.path),
            ("Node", own.node_id),
            ("Process", f"pid {own.pid}, since {timestamp(own.started)}"),
            ("Last heartbeat", timestamp(details.time_since_last_heartbeat)),
            ("Slots", f"{details.slots_number}, {details.free_slots} free"),
            ("Driver places", f"{own.driver_places_total}, {own.driver_places_available} free"),
            ("Standbys", _standbys(own.standbys)),
            ("Cores", f"{total.cpu_cores:g}, {free.cpu_cores:g} free"),
            ("Memory", f"{memory(total.task_heap_memory)}, {memory(free.task_heap_memory)} free"),
            ("Disk free", memory(own.disk_free_mb)),
            ("Taken over", f"{own.adopted} processes of the previous instance" if own.adopted else ""),
            ("Versions", f"Python {own.python}, Spark {own.spark}, Java {own.java}"),
        ]
    )
    if details.allocated_slots:
        print_line("\nSlots given away")
        print_table(
            ("SLOT", "JOB", "ATTEMPT", "CORES", "MEMORY"),
            [
                (
                    str(slot.index),
                    slot.job_id[:SHORT_ID],
                    str(slot.attempt),
                    f"{slot.resource.cpu_cores:g}",
                    memory(slot.resource.task_heap_memory),
                )
                for slot in details.allocated_slots
            ],
        )
    if own.local_state:
        print_line("\nLocal state")
        print_table(
            ("JOB", "FILES", "SIZE"),
            [(state.jid[:SHORT_ID], str(state.files), byte_count(state.size)) for state in own.local_state],
        )
    if own.drivers:
        print_line("\nDrivers")
        print_table(
            ("JOB", "ATTEMPT", "STATE", "PID", "MEMORY"),
            [(d.jid[:SHORT_ID], str(d.attempt), d.state.value, str(d.pid), memory(d.memory_mb)) for d in own.drivers],
        )
