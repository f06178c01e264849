"""Wires one of several JobManagers: it stands by on its port, leads when its turn comes, and stands by again.

A turn as leader ends if, for example, the ZooKeeper session is lost or another JobManager takes over. The process then
continues as a standby. Nothing of one turn is kept for the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import structlog
from aiohttp import web

from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import check_bind_address
from emberkeep.adapters.http.switch import SwitchedPort
from emberkeep.adapters.http.token_file import load_or_create_token
from emberkeep.adapters.leader_news.inquiry import TellsLeader
from emberkeep.adapters.shared_storage.cluster import ClusterStorage
from emberkeep.adapters.shared_storage.watch import StorageWatch
from emberkeep.adapters.zookeeper.access.settings import session_settings
from emberkeep.adapters.zookeeper.election import ZooKeeperElection
from emberkeep.adapters.zookeeper.layout import ZooKeeperLayout, zookeeper_layout
from emberkeep.adapters.zookeeper.leader_locators import ZooKeeperLocator
from emberkeep.adapters.zookeeper.registration import AddressRegistration, own_registration
from emberkeep.adapters.zookeeper.session import SessionState, ZooKeeperSession
from emberkeep.adapters.zookeeper.storage import StorageReaders
from emberkeep.adapters.zookeeper.store import ZooKeeperJobStore
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.high_availability import ZOOKEEPER_QUORUM
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ID, REST_ADDRESS, REST_BIND_ADDRESS
from emberkeep.base.configuration.options.security import TOKEN_FILE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import RetryLater
from emberkeep.base.system import System
from emberkeep.daemons.encryption import check_unencrypted, open_tls
from emberkeep.daemons.jobmanager.leading import Leadership, leadership
from emberkeep.daemons.jobmanager.metrics_push import otlp_settings
from emberkeep.daemons.jobmanager.notifying import webhook_settings
from emberkeep.daemons.jobmanager.process_settings import (
    JobManagerSettings,
    audit_log,
    bound_ports,
    names,
    shipped_audit,
)
from emberkeep.daemons.process_main import Services
from emberkeep.jobmanager.contender import Contender
from emberkeep.jobmanager.views.election import ElectionView, ZooKeeperConnection
from emberkeep.protocol.messages.root import Message
from emberkeep.rest.spark_proxy.application import build_spark_proxy_standby
from emberkeep.rest.standby import STANDBY_PUBLIC, build_standby

log = structlog.get_logger(__name__)

_CONNECTING_SECONDS = 5.0  # after this time, a start continues without ZooKeeper
_LEAVING_SECONDS = 10.0  # on an orderly exit, the longest wait for leaving the election
_RETIRING_SECONDS = 2.0  # before that, the longest wait for closing the BLOB server: the next leader is more urgent


@contextlib.asynccontextmanager
async def contending_job_manager(
    system: System, configuration: Configuration, layout: StateLayout, services: Services, stop: asyncio.Event
) -> AsyncIterator[str]:
    """Serve the port, stand by and lead; yield the URL.

    On exit, release leadership, so that another JobManager can lead at once. Raises Fatal (port in use),
    InvalidInput (settings).
    """
    bind = configuration[REST_BIND_ADDRESS]
    check_bind_address(bind, bool(configuration[TOKEN_FILE]))
    token = load_or_create_token(layout.token_file)
    check_unencrypted(configuration, configuration[REST_ADDRESS], bind)
    tls = await asyncio.to_thread(open_tls, configuration, layout, *names(configuration), founds=False)
    webhook, otlp = webhook_settings(configuration), otlp_settings(configuration, layout)
    nodes, zookeeper = zookeeper_layout(configuration), session_settings(configuration, token)
    async with contextlib.AsyncExitStack() as stack:
        port, ui_port = stack.enter_context(bound_ports(configuration))
        audit = await stack.enter_async_context(audit_log(system, configuration, layout, services))
        session = ZooKeeperSession(zookeeper)
        readers = StorageReaders(session, nodes)
        owned = ClusterStorage(layout, system.clock.now_ms)
        storage = StorageWatch(layout, owned, lambda reads: readers.exchange(reads=reads), now_ms=system.clock.now_ms)
        settings = JobManagerSettings(
            system,
            configuration,
            layout,
            token,
            port,
            ui_port,
            stop,
            storage,
            owned,
            audit,
            tls,
            webhook,
            otlp,
        )
        if tls is not None:
            services.start("certificate", tls.keep())
        await stack.enter_async_context(shipped_audit(settings, services))
        session.start()
        stack.push_async_callback(session.close)
        locator = ZooKeeperLocator(session, nodes, system.clock.now_ms)
        services.start("leader locator", locator.run())
        ports = SwitchedPort(port, settings.server_tls), SwitchedPort(ui_port, settings.server_tls)
        front = _Front(settings, session, locator, *ports)
        stack.push_async_callback(front.close)
        await front.open()
        own = own_registration(settings.address, configuration[JOB_MANAGER_ID])
        registration = AddressRegistration(session, nodes, own, zookeeper.session_timeout)
        election = ZooKeeperElection(session, nodes, settings.address, registration=registration)
        contender = Contender(
            election,
            lambda: _Turn(settings, front, session, nodes),
            system.rng,
        )
        services.start("contender", contender.run())
        services.start("storage watch", storage.run(contender.take))
        try:
            await services.run_until_done(_settled(session, election))
            yield settings.url
            await contender.retire()
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING_SECONDS):
                    await contender.leave()


async def _settled(session: ZooKeeperSession, election: ZooKeeperElection) -> None:
    """Return when this JobManager has a place in the queue or is refused one, or ZooKeeper is unreachable."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CONNECTING_SECONDS):
            await session.connected()
            await election.settled.wait()
    if session.state is SessionState.CONNECTED:
        await election.settled.wait()


class _Front:
    """The applications on the ports: a standby's, which direct callers to the leader, or the leader's."""

    def __init__(
        self,
        settings: JobManagerSettings,
        session: ZooKeeperSession,
        locator: ZooKeeperLocator,
        port: SwitchedPort,
        spark_ui_port: SwitchedPort,
    ) -> None:
        self._port = port
        self._spark_ui_port = spark_ui_port
        self._settings = settings
        self._session = session
        self.locator = locator

    async def open(self) -> None:
        await self._port.open(self._standby())
        await self._spark_ui_port.open(self._spark_ui_standby())

    async def stand_by(self) -> None:
        await self._spark_ui_port.switch(self._spark_ui_standby())  # first: its pages need the services that have ended
        await self._port.switch(self._standby())

    async def lead(self, leading: Leadership) -> None:
        await self._port.switch(leading.app)
        await self._spark_ui_port.switch(leading.spark_uis)

    async def close(self) -> None:
        await self._spark_ui_port.close()
        await self._port.close()

    def other_leader(self) -> str | None:
        """Return the address of another JobManager that leads; None if none is known."""
        leader = self.locator.leader()
        return None if leader is None or leader.address == self._settings.address else leader.address

    def election(self) -> ElectionView:
        """Return what this JobManager knows about the election."""
        return ElectionView(
            servers=self._session.hosts,
            connection=ZooKeeperConnection[self._session.state.name],
            queue=self.locator.queue,
            queue_changed_ms=self.locator.queue_changed_ms,
            known=self.locator.news().job_managers,
        )

    async def serve(self, request: Message) -> Message:
        """Refuse a request, as the RpcService of a standby. Raises RetryLater."""
        leader = self.other_leader()
        raise RetryLater(
            f"the JobManager at {self._settings.address} is not the leader and refuses {type(request).__name__}",
            hint=f"send it to the leader at {leader}" if leader else "an election may be in progress: try again",
        )

    def _standby(self) -> web.Application:
        policy = self._settings.policy
        policy = dataclasses.replace(policy, public=policy.public | STANDBY_PUBLIC)
        return build_standby(
            self.other_leader,
            secure=lambda app: self._settings.guard(app, policy),
            routes=rpc_routes(TellsLeader(self.locator, self)),
            problem=self._problem,
        )

    def _spark_ui_standby(self) -> web.Application:
        return build_spark_proxy_standby(self.other_leader, guard=self._settings.guard_spark_ui)

    def _problem(self) -> str:
        """Return why this JobManager is not fit to lead now, or "" if it is."""
        if self._session.state is not SessionState.CONNECTED:
            return f"cannot reach ZooKeeper at {self._session.hosts} (check its servers and {ZOOKEEPER_QUORUM.key})"
        return self._settings.storage.problem


class _Turn:
    """One turn of this JobManager as leader. Implements Turn."""

    def __init__(
        self, settings: JobManagerSettings, front: _Front, session: ZooKeeperSession, nodes: ZooKeeperLayout
    ) -> None:
        self._settings = settings
        self._front = front
        graphs, ids = settings.layout.graphs, settings.system.ids
        self._store = ZooKeeperJobStore(
            session, nodes, graphs, ids, address=settings.address, elected=True, storage=settings.owned_storage
        )
        self._leadership: Leadership | None = None
        self._paused = False

    async def claim(self) -> int:
        return await self._store.open()

    async def serve(self, epoch: int) -> None:
        services = Services()
        try:
            leading = leadership(
                self._settings,
                self._store,
                steps_aside=True,
                known=self._front.locator,
                overtook=self._store.epoch.overtook,
                election=self._front.election,
            )
            async with leading as present:
                self._leadership = present
                if self._paused:
                    present.service.pause()
                try:
                    await present.start(services, epoch)
                    await self._front.lead(present)
                    log.info("JobManager leads", epoch=epoch, address=self._settings.address)
                    await services.run_until_done(asyncio.Event().wait())
                finally:
                    await services.cancel()
        finally:
            self._leadership = None
            await self._front.stand_by()

    async def confirm(self) -> None:
        await self._store.confirm()

    def pause(self) -> None:
        self._paused = True
        if self._leadership is not None:
            self._leadership.service.pause()

    def resume(self) -> None:
        self._paused = False
        if self._leadership is not None:
            self._leadership.service.resume()

    async def retire(self) -> None:
        """Close the BLOB server and push the last metrics if this JobManager leads; wait at most _RETIRING_SECONDS.

        The next leader, or the next start of this process, cleans up what remains; see ``BlobServer.close``.
        """
        if self._leadership is not None:
            self._leadership.service.retire()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RETIRING_SECONDS):
                    await asyncio.gather(self._leadership.blobs.close(), self._leadership.push_last_metrics())

    async def close(self) -> None:
        await self._store.close()
