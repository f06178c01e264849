"""``emberkeep cluster status``."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.cli.cluster.other_store import print_of_another_store
from emberkeep.cli.cluster.task_manager_views import LESS_OF_TASK_MANAGERS, task_manager_table
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say_error
from emberkeep.cli.tables import print_fields, print_table
from emberkeep.cli.views.viewing import View, Viewing, show_result
from emberkeep.cli.wording import LESS_OF_JOBS, counted, job_table, timestamp
from emberkeep.client.clusters.cluster_file import ClusterRecord
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.errors import NoCluster
from emberkeep.client.rest_client import RestClient
from emberkeep.diagnosis.certificates import SOON_MS
from emberkeep.protocol.rest_cluster import ClusterExtension, ClusterOverview
from emberkeep.protocol.rest_jobs import JobDetails
from emberkeep.protocol.rest_task_managers import TaskManagerSummary

_SHOWN_JOBS = 10

Picture = tuple[ClusterOverview, list[TaskManagerSummary], list[JobDetails]]


@dataclass(frozen=True)
class Status:
    """The processes of the cluster on this machine, and its JobManager's view, or why there is none.

    ``record`` is None if the cluster is elsewhere. ``page``: how to log in to the web page.
    """

    record: ClusterRecord | None
    picture: Picture | None
    page: str = ""
    problem: str = "its JobManager is not running"


def show_status(record: ClusterRecord | None, endpoint: Endpoint | None, viewing: Viewing) -> int:
    """Print the processes of the local cluster and the JobManager's view of the cluster; return the exit code.

    Raises NoCluster, NotAuthorised.
    """
    if record is None and endpoint is None:
        raise NoCluster
    # Show the local processes only if the endpoint is that of the local cluster.
    local = record if record is not None and (endpoint is None or endpoint.url == record.url) else None
    with_page = not viewing.watch and not viewing.output.is_data  # each link is a new one, of which there are few

    async def read() -> Status:
        return await _read(endpoint, local, with_page=with_page)

    showing = show_result(viewing, read, View(_print, _as_data))
    shown = asyncio.run(showing)
    if shown is None:
        return ExitCode.OK
    if shown.picture is None:
        say_error(shown.problem, "start what is missing with `emberkeep cluster up`")
        return ExitCode.UNREACHABLE
    if local is not None and not all(daemon.is_running for daemon in local.daemons):
        say_error("not all processes of the cluster run", "start what is missing with `emberkeep cluster up`")
        return ExitCode.FAILED
    return ExitCode.OK


async def _read(endpoint: Endpoint | None, record: ClusterRecord | None, *, with_page: bool) -> Status:
    if endpoint is None:
        return Status(record, None)
    try:
        async with RestClient(endpoint) as client:
            picture = await client.overview(), await client.task_managers(), await client.jobs()
            page = await web_page(client, record) if with_page and record is not None else ""
            return Status(record, picture, page)
    except RetryLater as error:
        return Status(record, None, problem=error.message)


def _as_data(status: Status) -> dict[str, Any]:
    processes = [
        {"name": daemon.name, "pid": daemon.identity.pid, "running": daemon.is_running, "directory": daemon.directory}
        for daemon in (status.record.daemons if status.record else ())
    ]
    overview, task_managers, jobs = status.picture or (None, [], [])
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


def _print(status: Status, is_wide: bool) -> None:
    record, picture, page = status.record, status.picture, status.page
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
        print_table(*task_manager_table(picture[1], is_wide=is_wide), LESS_OF_TASK_MANAGERS)
    if picture is not None:
        print_of_another_store(picture[0].emberkeep.taskmanagers_of_another_store)
    if picture is not None and picture[2]:
        print_line("\nJobs, newest first")
        print_table(*job_table(picture[2][:_SHOWN_JOBS], is_wide=is_wide), LESS_OF_JOBS)
        if len(picture[2]) > _SHOWN_JOBS:
            print_line(f"… {len(picture[2]) - _SHOWN_JOBS} older jobs: `emberkeep list` shows all")


def _encryption(own: ClusterExtension) -> str:
    if own.encryption == "none":
        return "none: a process that takes a server's port gets the token (security.encryption)"
    if own.certificate_expires is None:
        return "TLS; the JobManager cannot read its certificate"
    soon = own.certificate_expires - time.time() * 1000 < SOON_MS
    warning = "; it ends soon: renew it (security.tls.certificate)" if soon else ""
    return f"TLS, certificate until {timestamp(own.certificate_expires)}{warning}"


def _storage(problem: str, unneeded: int) -> str:
    """Return what an operator must decide about the storage; "" if nothing."""
    if not problem:
        return ""
    return f"nothing is deleted there: {problem}; {counted(unneeded, 'piece')} of data without a known job"
