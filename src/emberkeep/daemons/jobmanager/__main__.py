"""The JobManager daemon: ``python -m emberkeep.daemons.jobmanager``."""

from __future__ import annotations

import asyncio
import sys

import structlog

from emberkeep.adapters.logging_setup import set_up_logging
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.job_managers import REST_ADDRESS, REST_BIND_ADDRESS
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.system import real_system
from emberkeep.daemons.announced_address import AnnouncedAddress, warn_of_announced_address
from emberkeep.daemons.announcement import announce_ready
from emberkeep.daemons.encryption import announced_ca
from emberkeep.daemons.jobmanager.alone import job_manager_process
from emberkeep.daemons.jobmanager.contending import contending_job_manager
from emberkeep.daemons.leader_following import is_highly_available
from emberkeep.daemons.process_main import Services, leave, run_daemon
from emberkeep.jobmanager.resources.reclaim_settings import reclaim_terms

log = structlog.get_logger(__name__)


async def serve(configuration: Configuration, layout: StateLayout, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set."""
    set_up_logging("jobmanager", layout.job_manager / "logs", configuration)
    reclaim_terms(configuration)  # refused here if they contradict each other, not only once this process leads
    address, bound = configuration[REST_ADDRESS], configuration[REST_BIND_ADDRESS]
    await warn_of_announced_address(AnnouncedAddress(REST_ADDRESS.key, address, REST_BIND_ADDRESS.key, bound))
    services = Services()
    try:
        if is_highly_available(configuration):
            async with contending_job_manager(real_system(), configuration, layout, services, stop) as url:
                announce_ready(url, layout.token_file, announced_ca(configuration, layout))
                await services.run_until(stop)
                log.info("JobManager ends on request; running jobs continue")
            return
        async with job_manager_process(real_system(), configuration, layout, services, stop) as process:
            log.info("JobManager leads", url=process.url, epoch=process.service.gateway.epoch())
            announce_ready(process.url, layout.token_file, announced_ca(configuration, layout))
            await services.run_until(stop)
            log.info("JobManager ends on request; running jobs continue")
    finally:
        await services.cancel()


def main(arguments: list[str]) -> int:
    return run_daemon("jobmanager", arguments, serve)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
