"""All components and pairs whose crash points are tried."""

from __future__ import annotations

from tests.support.crashes import (
    authority,
    driver,
    driver_and_gateway,
    gateway,
    leader,
    leader_and_task_manager,
    records,
    sink,
    sink_and_driver,
    storage,
    task_manager,
)

COMPONENTS = (
    *leader.COMPONENTS,
    *task_manager.COMPONENTS,
    *gateway.COMPONENTS,
    *driver.COMPONENTS,
    *sink.COMPONENTS,
    *records.COMPONENTS,
    *authority.COMPONENTS,
    *storage.COMPONENTS,
)

PAIRS = {pair.name: pair for pair in (leader_and_task_manager.PAIR, driver_and_gateway.PAIR, sink_and_driver.PAIR)}
