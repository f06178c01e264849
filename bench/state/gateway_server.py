"""``python -m bench.state.gateway_server DIRECTORY``: a state gateway alone. Prints "host:port" and a credential of
an executor, and serves until SIGTERM. All that it keeps is in DIRECTORY, ``storage`` the durable part."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

import structlog

from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId
from emberkeep.base.system import real_system
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.taskmanager.state_gateways import state_gateway_link
from tests.support.state_slots import begin_slot, own_states
from tests.support.working_places import working_place

JOB = JobId("b" * 32)


async def _serve(directory: Path) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    texts = {"state.backend.local-recovery": "true", "emberkeep.state-dir": str(directory)}
    configuration = Configuration().with_texts(texts, "the measurement")
    services = Services()
    layout, place = StateLayout(directory, configuration), working_place(directory / "tm")
    async with state_gateway_link(
        real_system(), configuration, place, layout, services, own_states(configuration, layout, place)
    ) as link:
        assert link is not None
        own_state = open_state_store(f"{layout.checkpoints}/{JOB}")
        print(link.port.address, begin_slot(link, JOB, own_state), flush=True)
        await services.run_until(stop)
    await services.cancel()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
