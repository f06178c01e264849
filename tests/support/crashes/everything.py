"""All components and pairs whose crash points are tried."""

from __future__ import annotations

from tests.support.crashes import (
    authority,
    backups,
    driver,
    gateway,
    leader,
    records,
    sink,
    storage,
    task_manager,
)
from tests.support.crashes.pairs import driver_and_gateway, leader_and_task_manager, sink_and_driver

COMPONENTS = (
    *leader.COMPONENTS,
    *task_manager.COMPONENTS,
    *gateway.COMPONENTS,
    *driver.COMPONENTS,
    *sink.COMPONENTS,
    *records.COMPONENTS,
    *authority.COMPONENTS,
    *storage.COMPONENTS,
    *backups.COMPONENTS,
)

PAIRS = {pair.name: pair for pair in (leader_and_task_manager.PAIR, driver_and_gateway.PAIR, sink_and_driver.PAIR)}
