"""``python -m bench.state.local_server DIRECTORY near|far``: a node's state gateway over a durable directory, which is
``far`` away or not. Prints "host:port" and a credential, and serves until SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

import structlog

from bench.state.throttled import Link, ThrottledState
from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId
from emberkeep.base.system import real_system
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.taskmanager.state_gateways import state_gateway_link
from emberkeep.local_state.ports import DurableState
from tests.support.state_slots import begin_slot
from tests.support.working_places import working_place

JOB = JobId("b" * 32)


async def _serve(directory: Path, far: bool) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    texts = {"state.backend.local-recovery": "true", "emberkeep.state-dir": str(directory)}
    configuration = Configuration().with_texts(texts, "the measurement")
    layout, place, services = StateLayout(directory, configuration), working_place(directory / "tm"), Services()
    link = Link()

    def open_state(location: str, _: int | None) -> DurableState:
        store = open_state_store(location)
        return ThrottledState(store, link) if far else store

    async with state_gateway_link(real_system(), configuration, place, layout, services, open_state) as gateway:
        assert gateway is not None
        own_state = open_state_store(f"{layout.checkpoints}/{JOB}")
        print(gateway.port.address, begin_slot(gateway, JOB, own_state), flush=True)
        await services.run_until(stop)
    await services.cancel()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # stdout is for the address
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2] == "far"))
