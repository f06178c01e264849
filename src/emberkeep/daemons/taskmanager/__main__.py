"""The task manager daemon: ``python -m emberkeep.daemons.taskmanager``.

SIGTERM and SIGINT end only this process: its drivers and executors continue to run, and the next task manager in its
working directory takes them over. SIGQUIT, or a request of the JobManager, ends them first and releases everything.
SIGUSR1 lets them move to other task managers first. With ``taskmanager.sigterm-ends-work``, SIGTERM means SIGQUIT.
"""

from __future__ import annotations

import asyncio
import signal
import sys

import structlog

from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.logging_setup import set_up_logging
from emberkeep.base.cluster_identity import cluster_of_member
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.task_managers import DRAIN_TIMEOUT, SIGTERM_ENDS_WORK
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import real_system
from emberkeep.daemons.announcement import announce_ready
from emberkeep.daemons.encryption import announced_ca
from emberkeep.daemons.process_main import Services, leave, run_daemon
from emberkeep.daemons.taskmanager.process import TaskManagerProcess, task_manager_process
from emberkeep.daemons.taskmanager.working_place import held_working_place

log = structlog.get_logger(__name__)


async def serve(configuration: Configuration, layout: StateLayout, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set."""
    system = real_system()
    cluster = cluster_of_member(configuration, load_or_create_token(layout.token_file))
    with held_working_place(configuration, layout, cluster, system.clock) as place:
        set_up_logging("taskmanager", place.directory.logs, configuration)
        services = Services()
        try:
            async with task_manager_process(system, configuration, layout, place, services) as process:
                log.info("task manager serves", address=process.address, directory=str(place.directory.root))
                announce_ready(process.url, layout.token_file, announced_ca(configuration, layout))

                def retire() -> None:
                    process.retiring = True
                    stop.set()

                loop = asyncio.get_running_loop()
                loop.add_signal_handler(signal.SIGQUIT, retire)
                if configuration[SIGTERM_ENDS_WORK]:
                    loop.add_signal_handler(signal.SIGTERM, retire)
                loop.add_signal_handler(signal.SIGUSR1, process.service.drain, configuration[DRAIN_TIMEOUT])
                await services.run_until_done(_told_to_end(stop, process))
                log.info("task manager ends on request", with_its_work=process.retiring)
        finally:
            await services.cancel()


async def _told_to_end(stop: asyncio.Event, process: TaskManagerProcess) -> None:
    """Return when a signal or the JobManager has asked this process to end."""
    retired = asyncio.create_task(process.service.retired(), name="retired")
    stopped = asyncio.create_task(stop.wait(), name="stopped")
    try:
        await asyncio.wait({retired, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if retired.done() and not stopped.done():
            process.retiring = True
    finally:
        retired.cancel()
        stopped.cancel()


def main(arguments: list[str]) -> int:
    return run_daemon("taskmanager", arguments, serve)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
