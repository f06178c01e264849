"""JobManager and task manager on one event loop: ``python -m emberkeep.daemons.local``.

``emberkeep run`` starts this process if there is no cluster. It stops, with all its jobs and processes, on SIGTERM, and
when its standard input closes because its parent has ended. If it is started again in the same directory after a
SIGKILL, it takes over its jobs, with the drivers and executors that are still alive.
"""

from __future__ import annotations

import asyncio
import os
import sys

import structlog

from emberkeep.adapters.logging_setup import set_up_logging
from emberkeep.base.cluster_identity import cluster_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.blobs import BLOB_DIRECTORY
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ADDRESS
from emberkeep.base.configuration.options.logs import LOGS_KEEP_INTERVAL
from emberkeep.base.configuration.options.resource_drivers import RESOURCE_MANAGER_TYPE
from emberkeep.base.configuration.options.standbys import STANDBY_DRIVERS, STANDBY_EXECUTORS
from emberkeep.base.configuration.options.task_managers import JOB_ENVIRONMENT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import real_system
from emberkeep.daemons.announcement import announce_ready
from emberkeep.daemons.encryption import announced_ca
from emberkeep.daemons.jobmanager.alone import job_manager_process
from emberkeep.daemons.process_main import Services, leave, run_daemon
from emberkeep.daemons.taskmanager.job_environment import EVERYTHING
from emberkeep.daemons.taskmanager.process import task_manager_process
from emberkeep.daemons.taskmanager.working_place import held_working_place

log = structlog.get_logger(__name__)
_ARCHIVE_DELAY = 60.0  # seconds: shorter runs would begin a class archive, end before it is complete and gain nothing


async def serve(configuration: Configuration, layout: StateLayout, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set or standard input closes."""
    set_up_logging("local", layout.job_manager / "logs", configuration)
    _stop_at_end_of_input(stop)
    services, system = Services(), real_system()
    try:
        alone = configuration.with_texts({RESOURCE_MANAGER_TYPE.key: "standalone"}, "embedded")
        leader = _own_blobs(alone, "jobmanager")
        async with job_manager_process(system, leader, layout, services, stop) as job_manager:
            own = task_manager_configuration(configuration, job_manager.address)
            cluster = cluster_id(configuration, layout)
            with held_working_place(own, layout, cluster, system.clock) as place:
                async with task_manager_process(
                    system, own, layout, place, services, archive_delay=_ARCHIVE_DELAY
                ) as task_manager:
                    log.info("embedded cluster serves", url=job_manager.url, task_manager=task_manager.address)
                    announce_ready(job_manager.url, layout.token_file, announced_ca(configuration, layout))
                    await services.run_until(stop)
                    task_manager.retiring = True
                    log.info("embedded cluster ends on request")
    finally:
        await services.cancel()


def task_manager_configuration(configuration: Configuration, job_manager: str) -> Configuration:
    """Return the task manager's configuration. By default its jobs inherit this process's whole environment."""
    inherited = {JOB_ENVIRONMENT.key: EVERYTHING, **configuration.texts()}[JOB_ENVIRONMENT.key]
    # The process ends with its jobs: a process that is warmed for later ones would never be used.
    no_standbys = {STANDBY_DRIVERS.key: "0", STANDBY_EXECUTORS.key: "0"}
    no_copies = {LOGS_KEEP_INTERVAL.key: "0"}  # the storage of this process ends with it as well
    return _own_blobs(configuration, "taskmanager").with_texts(
        {JOB_MANAGER_ADDRESS.key: job_manager, JOB_ENVIRONMENT.key: inherited, **no_standbys, **no_copies}, "embedded"
    )


def _own_blobs(configuration: Configuration, role: str) -> Configuration:
    """Return the configuration with a BLOB directory for this role: BLOB server and BLOB cache must not share one."""
    directory = configuration[BLOB_DIRECTORY]
    return (
        configuration.with_texts({BLOB_DIRECTORY.key: f"{directory}/{role}"}, "embedded")
        if directory
        else configuration
    )


def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    """Set ``stop`` when the parent closes its end of the pipe. The parent writes nothing to the pipe."""
    loop = asyncio.get_running_loop()
    descriptor = sys.stdin.fileno()

    def look() -> None:
        if not os.read(descriptor, 4096):
            loop.remove_reader(descriptor)
            stop.set()

    try:
        loop.add_reader(descriptor, look)
    except PermissionError:
        # A regular file or /dev/null cannot be watched. In that case, only signals end this process.
        log.info("standard input is not a pipe; only signals end this process")


def main(arguments: list[str]) -> int:
    return run_daemon("local", arguments, serve)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
