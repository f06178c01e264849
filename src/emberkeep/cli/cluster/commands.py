"""``cluster up|down|status`` and ``taskmanagers list|show``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from emberkeep.base.errors import EmberkeepError, InvalidInput
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, ConfigOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import say
from emberkeep.cli.parameters import CompletedTaskManager
from emberkeep.cli.tables import print_fields, print_table
from emberkeep.cli.views.viewing import DEFAULT_VIEWING, Viewing, show

if TYPE_CHECKING:
    from pathlib import Path

    from emberkeep.client.clusters.cluster_file import ClusterRecord, ClusterShape
    from emberkeep.client.clusters.local_cluster import LocalCluster
    from emberkeep.client.rest_client import RestClient
    from emberkeep.protocol.rest_cluster import TaskManagerOfAnotherStore
    from emberkeep.protocol.rest_task_managers import TaskManagerDetails, TaskManagerSummary

    TaskManagersPicture = tuple[list[TaskManagerSummary], tuple[TaskManagerOfAnotherStore, ...]]

cluster_app = App(name="cluster", help="Start, stop and inspect a cluster of processes on this machine.", sort_key=20)
task_managers_app = App(name="taskmanagers", help="Show the task managers of a cluster.", sort_key=21)
DEFAULT_CONFIG = ConfigOptions()
_JOB_MANAGERS = 3
_MAX_JOB_MANAGERS = 9


@cluster_app.command
def up(
    *,
    task_managers: int | None = None,
    slots: int | None = None,
    nodes: Annotated[str | None, Parameter(metavar="ADDRESSES")] = None,
    memory: Annotated[str | None, Parameter(metavar="MEM")] = None,
    ha: Annotated[bool, Parameter(negative=())] = False,
    job_managers: int | None = None,
    zookeepers: int | None = None,
    config: ConfigOptions = DEFAULT_CONFIG,
) -> int:
    """Start a JobManager and task managers on this machine, each as a process of its own.

    Without options, start what is missing from a cluster that still runs in part.

    Parameters
    ----------
    task_managers
        How many task managers.
        Default: 1 on 127.0.0.1, or none if the JobManager starts them (resourcemanager.type).
        Several run on 127.0.0.2, 127.0.0.3, …
    slots
        Slots of each task manager, for one executor each. Default: taskmanager.numberOfTaskSlots.
    nodes
        Addresses of this machine, separated by commas. One task manager runs on each.
    memory
        Memory of each task manager for drivers and executors, such as 4g.
        Default: 80 % of the machine's memory, shared among all.
    ha
        Highly available: start several JobManagers, one of which is the leader, and ZooKeeper.
    job_managers
        With --ha: how many JobManagers. Default: 3.
    zookeepers
        With --ha: how many ZooKeeper servers: 1, 3 or 5. Default: 1.
    """
    from emberkeep.cli.interrupts import cancelled_by_signals
    from emberkeep.client.clusters.local_cluster import UpResult

    shape = _highly_available(_shape(task_managers, slots, nodes, memory, config), ha, job_managers, zookeepers)
    said = (task_managers, slots, nodes, memory, job_managers, zookeepers) != (None,) * 6 or ha or shape.definitions
    cluster = _local(config)
    try:
        result: UpResult = asyncio.run(cancelled_by_signals(cluster.up(shape, as_it_was=not said)))
    except asyncio.CancelledError:
        return ExitCode.INTERRUPTED
    if result.started:
        say(f"the cluster is up: {_count(result.record)}")
    else:
        say(f"the cluster is running already: {_count(result.record)}")
    _print_links(result.record, result.url, config.layout().cluster_file)
    return ExitCode.OK


@cluster_app.command
def down(*, config: ConfigOptions = DEFAULT_CONFIG) -> int:
    """Stop the local cluster and all processes that it has started. Keep its logs and unfinished jobs."""
    layout = config.layout()
    unfinished = _unfinished_jobs(layout.cluster_file)
    if not _local(config).down():
        say(f"no cluster is running below {layout.root}")
        return ExitCode.OK
    say(f"the cluster has stopped; its logs stay below {layout.root}")
    if unfinished:
        from emberkeep.cli.wording import counted

        say(f"{counted(unfinished, 'unfinished job')} will continue after the next `emberkeep cluster up`")
    return ExitCode.OK


@cluster_app.command
def status(
    *,
    viewing: Viewing = DEFAULT_VIEWING,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Show a cluster's processes, task managers, slots and jobs. Exit code 3 if it is unreachable.

    Exit code 1 if it answers, but one of its processes on this machine is not running.
    """
    from emberkeep.cli.cluster.status import show_status
    from emberkeep.client.clusters.cluster_file import read_cluster

    record = read_cluster(cluster.layout().cluster_file)
    return show_status(record, cluster.find(), viewing)


@task_managers_app.default
@task_managers_app.command(name="list")
def list_task_managers(
    *,
    viewing: Viewing = DEFAULT_VIEWING,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """List the registered task managers, and those that work for another job store.

    As JSON or YAML: the registered ones only.
    """

    async def read(client: RestClient) -> TaskManagersPicture:
        return await client.task_managers(), (await client.overview()).emberkeep.taskmanagers_of_another_store

    def text(picture: TaskManagersPicture, is_wide: bool) -> None:
        from emberkeep.cli.cluster.other_store import print_of_another_store
        from emberkeep.cli.cluster.task_manager_views import LESS_OF_TASK_MANAGERS, task_manager_table

        registered, of_another_store = picture
        if registered:
            print_table(*task_manager_table(registered, is_wide=is_wide), LESS_OF_TASK_MANAGERS)
        else:
            say("no task manager is registered; jobs wait until one registers")
        print_of_another_store(of_another_store)

    show(cluster, viewing, read, text, lambda picture: picture[0])
    return ExitCode.OK


@task_managers_app.command(name="show")
def show_task_manager(
    task_manager: CompletedTaskManager,
    /,
    *,
    viewing: Viewing = DEFAULT_VIEWING,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Show one task manager: resources, slots, drivers.

    Parameters
    ----------
    task_manager
        Id of the task manager, as `emberkeep taskmanagers` shows it.
    """

    def text(details: TaskManagerDetails, _is_wide: bool) -> None:
        from emberkeep.cli.cluster.task_manager_views import print_task_manager

        print_task_manager(details)

    show(cluster, viewing, lambda client: client.task_manager(task_manager), text)
    return ExitCode.OK


def _unfinished_jobs(cluster_file: Path) -> int | None:
    """Return how many jobs of the running cluster have not ended; None if that is unknown.

    A token or a certificate that cannot be used any more must not keep anybody from stopping the cluster.
    """
    from emberkeep.client.clusters.discovery import local_endpoint, running_cluster
    from emberkeep.client.clusters.local_cluster import unfinished_jobs

    record = running_cluster(cluster_file)
    try:
        return None if record is None else with_client(local_endpoint(record, cluster_file), unfinished_jobs)
    except EmberkeepError:
        return None


def _shape(
    task_managers: int | None, slots: int | None, nodes: str | None, memory: str | None, config: ConfigOptions
) -> ClusterShape:
    from emberkeep.base.configuration.options.resource_drivers import RESOURCE_MANAGER_TYPE
    from emberkeep.base.configuration.options.task_managers import MEMORY, SLOTS
    from emberkeep.client.clusters.cluster_file import ClusterShape
    from emberkeep.client.clusters.shapes import node_addresses

    configuration = config.load()
    if slots is not None:
        configuration = configuration.with_texts({SLOTS.key: str(slots)}, "--slots")
    if memory is not None:
        configuration = configuration.with_texts({MEMORY.key: memory}, "--memory")
        if configuration[MEMORY] < 1024**2:
            raise InvalidInput(f"--memory {memory}: less than 1 MiB", field="--memory", hint="for example --memory 4g")
    on_demand = configuration[RESOURCE_MANAGER_TYPE] != "standalone" and task_managers is None and nodes is None
    return ClusterShape(
        nodes=() if on_demand else node_addresses(task_managers, nodes),
        slots=configuration[SLOTS],
        memory=memory or "",
        definitions=config.definitions,
    )


def _highly_available(shape: ClusterShape, ha: bool, job_managers: int | None, zookeepers: int | None) -> ClusterShape:
    import msgspec

    if not ha:
        if job_managers is not None or zookeepers is not None:
            raise InvalidInput("several JobManagers need ZooKeeper: add --ha", field="--ha")
        return shape
    managers = _JOB_MANAGERS if job_managers is None else job_managers
    servers = 1 if zookeepers is None else zookeepers
    if not 1 <= managers <= _MAX_JOB_MANAGERS:
        raise InvalidInput(f"--job-managers {managers}: not from 1 to {_MAX_JOB_MANAGERS}", field="--job-managers")
    if servers not in (1, 3, 5):
        raise InvalidInput(f"--zookeepers {servers}: not 1, 3 or 5", field="--zookeepers")
    return msgspec.structs.replace(shape, job_managers=managers, zookeepers=servers)


def _local(config: ConfigOptions) -> LocalCluster:
    from emberkeep.client.clusters.local_cluster import LocalCluster

    return LocalCluster(config.load(), config.layout(), config.effective_config_file(), say)


def _count(record: ClusterRecord) -> str:
    from emberkeep.cli.wording import counted

    if not record.task_managers:
        return "the JobManager starts task managers when jobs need them"
    return f"{counted(len(record.task_managers), 'task manager')} of {counted(record.shape.slots, 'slot')}"


def _print_links(record: ClusterRecord, url: str, cluster_file: Path) -> None:
    from emberkeep.cli.cluster.status import web_page
    from emberkeep.client.clusters.discovery import local_endpoint

    print_fields(
        [
            ("Web page", with_client(local_endpoint(record, cluster_file), lambda client: web_page(client, record))),
            ("API", f"{url}/v1"),
            ("Next", "emberkeep run app.py\nemberkeep cluster status\nemberkeep cluster down"),
        ]
    )
