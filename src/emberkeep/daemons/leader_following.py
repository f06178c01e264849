"""Keeps a task manager or driver connected to the current leader.

A node has one ZooKeeper session, that of its task manager. Drivers read a file that the task manager writes. A process
that gets no reply from the leader asks the other processes that it knows. Of two replies, the one with the higher epoch
counts, whatever its source.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from emberkeep.adapters.leader_news.file import keep_leader_file, read_leader_file, watch_leader_file
from emberkeep.adapters.leader_news.inquiry import LeaderInquiry
from emberkeep.adapters.zookeeper.access.settings import session_settings
from emberkeep.adapters.zookeeper.layout import zookeeper_layout
from emberkeep.adapters.zookeeper.leader_locators import KnownLeader, ZooKeeperLocator
from emberkeep.adapters.zookeeper.session import ZooKeeperSession
from emberkeep.base.configuration.options.high_availability import HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.identity import AttemptScope
from emberkeep.daemons.process_main import Services
from emberkeep.leadership.model import LeaderNews
from emberkeep.leadership.ports import LeaderLocator
from emberkeep.protocol.transport import RpcClient


class Follower(Protocol):
    """The part of a process that calls the leader."""

    on_silence: Callable[[], None]  # called whenever the leader does not reply

    @property
    def job_manager(self) -> str:
        """Address of the process that this follower takes for the leader."""

    def follow(self, job_manager: str) -> None:
        """Use the JobManager at this address as the leader from now on."""


def is_highly_available(configuration: Configuration) -> bool:
    """True if there may be several JobManagers."""
    return configuration[HA_TYPE] == "zookeeper"


def locate_by_zookeeper(
    configuration: Configuration, token: str, services: Services, stack: contextlib.AsyncExitStack
) -> ZooKeeperLocator:
    """Return the locator for the one process of a node that has a ZooKeeper session. ``token``: the cluster's token.

    Raises InvalidInput (settings).
    """
    session = ZooKeeperSession(session_settings(configuration, token))
    locator = ZooKeeperLocator(session, zookeeper_layout(configuration))
    session.start()
    stack.push_async_callback(session.close)
    services.start("leader locator", locator.run())
    return locator


async def tell_drivers(path: Path, known: LeaderLocator, services: Services) -> None:
    """Keep the file at ``path`` up to date, from which the node's drivers learn who the leader is.

    Take the JobManagers' addresses from the previous task manager process's file, but not the leader: the file may come
    from another cluster, whose epochs mean nothing in this cluster. The JobManagers report the leader themselves.
    """
    earlier = await asyncio.to_thread(read_leader_file, path)
    known.hear(LeaderNews(job_managers=earlier.job_managers))
    services.start("telling drivers who leads", keep_leader_file(path, known))


def locate_by_file(path: Path, services: Services) -> KnownLeader:
    """Return a driver's locator. ``path``: the file that its task manager keeps."""
    known = KnownLeader()
    services.start("leader file", watch_leader_file(path, known))
    return known


def follow_leader(
    known: LeaderLocator,
    follower: Follower,
    rpc: RpcClient,
    services: Services,
    *,
    is_informed: Callable[[], bool],
    others: Callable[[], Mapping[str, AttemptScope]] = dict,
) -> None:
    """Make ``follower`` follow each new leader, and ask other processes while the leader does not reply.

    ``is_informed`` returns true if new leaders become known without asking. ``others``: see LeaderInquiry.
    """
    known.hear(LeaderNews(job_managers=(follower.job_manager,)))
    inquiry = LeaderInquiry(known, rpc, others=others, is_informed=is_informed)
    follower.on_silence = inquiry.doubt
    services.start("asking for the leader", inquiry.run())
    services.start("following the leader", _follow(known, follower))


async def _follow(known: LeaderLocator, follower: Follower) -> None:
    newest = None
    while True:
        newest = await known.changed(newest)
        follower.follow(newest.address)
