"""How a task manager or driver stays with the leader, whoever that is at present."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from emberkeep.adapters.leader_locators import ZooKeeperLocator
from emberkeep.adapters.zookeeper_layout import zookeeper_layout
from emberkeep.adapters.zookeeper_session import ZooKeeperSession, session_settings
from emberkeep.base.config import Configuration
from emberkeep.base.options import HA_TYPE
from emberkeep.daemons.process_main import Services
from emberkeep.leadership.ports import LeaderLocator


def is_highly_available(configuration: Configuration) -> bool:
    """Whether there may be several JobManagers."""
    return configuration[HA_TYPE] == "zookeeper"


def follow_leader(
    configuration: Configuration, services: Services, stack: contextlib.AsyncExitStack, follow: Callable[[str], None]
) -> None:
    """Call ``follow`` with the leader's address, now and at each change. Does nothing for a JobManager that stands
    alone. Raises InvalidInput (settings)."""
    if not is_highly_available(configuration):
        return
    session = ZooKeeperSession(session_settings(configuration))
    locator = ZooKeeperLocator(session, zookeeper_layout(configuration))
    session.start()
    stack.push_async_callback(session.close)
    services.start("leader locator", locator.run())
    services.start("following the leader", _follow(locator, follow))


async def _follow(locator: LeaderLocator, follow: Callable[[str], None]) -> None:
    known = None
    while True:
        known = await locator.changed(known)
        follow(known.address)
