"""The JobMaster's thread in a driver process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import structlog
from aiohttp import web

from emberkeep.adapters.blobs.client import BlobThreads
from emberkeep.adapters.http.auditing import logging_refusals
from emberkeep.adapters.http.offload import Offload
from emberkeep.adapters.http.rpc import HttpRpcClient
from emberkeep.adapters.http.rpc_server import rpc_routes
from emberkeep.adapters.http.security import AccessPolicy, secure
from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.http.token_file import load_token
from emberkeep.adapters.leader_news.inquiry import TellsLeader
from emberkeep.adapters.tunnels.driver_side import tunnel_routes
from emberkeep.base.configuration.options.blobs import OFFLOAD_MIN_SIZE
from emberkeep.base.configuration.options.job_managers import RPC_TIMEOUT
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE, EVENT_LOG_ENABLED
from emberkeep.base.configuration.options.savepoints import STOP_SAVEPOINT_TIMEOUT
from emberkeep.base.configuration.options.task_managers import ORPHAN_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.base.processes.threads import started_pool
from emberkeep.base.system import System, real_system
from emberkeep.base.tls.links import TlsLinks
from emberkeep.daemons.blob_caching import BlobPlaces, blob_link
from emberkeep.daemons.driver.agent_watch import AgentWatch
from emberkeep.daemons.driver.connect_place import connect_place
from emberkeep.daemons.driver.event_log import EventLogBound
from emberkeep.daemons.driver.fencing.attempt_marks import AttemptMarks
from emberkeep.daemons.driver.fencing.mark_watch import MarkWatch
from emberkeep.daemons.driver.fencing.stop_watch import StopWatch
from emberkeep.daemons.driver.procedures import DriverProcedures
from emberkeep.daemons.driver.progress_store import DriverProgressStore
from emberkeep.daemons.driver.spark.bridge import SparkBridge, end_session, superseded
from emberkeep.daemons.driver.spark.ui import SparkUiPages
from emberkeep.daemons.leader_following import follow_leader, locate_by_file
from emberkeep.daemons.message_blobs import CacheMessageBlobs
from emberkeep.daemons.process_main import Services
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobmaster.identity import Identity
from emberkeep.jobmaster.job_master import JobMaster
from emberkeep.jobmaster.lease import CONFIRMED_SHARE, AttemptLease
from emberkeep.jobmaster.ports import Application
from emberkeep.jobmaster.service import JobMasterService
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.local_state.placement import Survey
from emberkeep.spark.doors.flows import known_flows
from emberkeep.spark.jvm.spark_ui import access_token
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX

log = structlog.get_logger(__name__)
WAITING_SECONDS = 30.0  # between log lines about waiting for a JobManager
REPORT_SECONDS = 10.0  # the outcome is usually on disk for the task manager, so this wait can be short


class JobMasterThread:
    """Runs the JobMaster on its own event loop. Methods are called from the script's thread."""

    def __init__(self, spec: DriverSpec, configuration: Configuration, bridge: SparkBridge) -> None:
        self._spec = spec
        self._configuration = configuration
        self._bridge = bridge
        self._loop = asyncio.new_event_loop()
        # The name marks the threads as ours, so that the script's end does not wait for idle ones.
        self._loop.set_default_executor(started_pool(4, f"{OWN_THREAD_PREFIX}-jobmaster-io"))
        self.lease = AttemptLease(configuration[DRIVER_LEASE] * CONFIRMED_SHARE)
        self._marks = AttemptMarks(spec)
        self._registered = threading.Event()
        self._failed_start: BaseException | None = None
        self._stop = asyncio.Event()
        self._service: JobMasterService | None = None
        self._thread = threading.Thread(target=self._run, name=f"{OWN_THREAD_PREFIX}-jobmaster", daemon=True)

    def start(self) -> None:
        """Start the thread and wait until a JobManager has accepted this attempt.

        Waits without limit if no JobManager replies: the next leader may need time. The process ends if the JobManager
        refuses the attempt, or if the task manager stops it because the attempt has ended. Then write this attempt's
        mark, so that an older attempt that is cut off ends. Raises the thread's error if the thread ends before it has
        registered, and what ``AttemptMarks.write`` raises.
        """
        self._thread.start()
        while not self._registered.wait(WAITING_SECONDS):
            waits_for = self._job_manager()
            log.warning("waiting for the JobManager", job_manager=waits_for)
            print(  # noqa: T201 - the job's own error output
                f"emberkeep: the JobManager at {waits_for} does not answer; the script starts once it does",
                file=sys.stderr,
                flush=True,
            )
        if self._failed_start is not None:
            raise self._failed_start
        self._marks.write()
        StopWatch(self.lease, self._jvm_pid, self._ask).start()
        MarkWatch(self.lease, self._spec.attempt, self._marks.newest, superseded).start()

    def _jvm_pid(self) -> int | None:
        runtime = self._bridge.runtime
        return None if runtime is None else runtime.jvm_pid()

    def _ask(self) -> None:
        """Make the JobMaster ask the JobManager at once to confirm this attempt."""
        service = self._service
        if service is not None:
            self._loop.call_soon_threadsafe(service.master.link.ask)

    def application_started(self, application: Application) -> None:
        self._call(lambda master: master.application_started(application))

    def application_stopping(self) -> None:
        times, work = self._bridge.first_times(), self._bridge.work()
        flows = known_flows()
        self._call(lambda master: master.application_stopping(times, work, flows))

    def application_stopped(self) -> None:
        self._call(lambda master: master.application_stopped())

    def survey_local_state(self) -> Survey:
        """Return which local state the job's nodes hold. Raises RetryLater.

        Do not call on the JobMaster's own thread.
        """
        service = self._service
        assert service is not None, "the script runs only after the JobMaster is up"  # noqa: S101
        future = asyncio.run_coroutine_threadsafe(service.survey_local_state(), self._loop)
        try:
            return future.result(2 * self._configuration[RPC_TIMEOUT])
        except (TimeoutError, CancelledError) as error:
            future.cancel()
            raise RetryLater("the JobMaster did not answer") from error

    def _call(self, call: Callable[[JobMaster], None]) -> None:
        service = self._service
        assert service is not None, "the script runs only after the JobMaster is up"  # noqa: S101
        self._loop.call_soon_threadsafe(call, service.master)

    def report(self, outcome: AttemptOutcome) -> bool:
        """Report how the attempt ended, retrying for REPORT_SECONDS at most.

        Return True if the JobManager replied: it has stored the outcome, or knows another outcome and refused this one.
        """
        service = self._service
        if service is None:
            return False
        future = asyncio.run_coroutine_threadsafe(service.report_outcome(outcome), self._loop)
        try:
            future.result(REPORT_SECONDS)
        except (EmberkeepError, TimeoutError) as error:
            future.cancel()
            reason = str(error) or f"no reply within {REPORT_SECONDS:g} s"
            log.warning("cannot report the outcome to the JobManager", reason=reason)
            return False
        return True

    def stop(self) -> None:
        """End the thread; wait at most REPORT_SECONDS."""
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(REPORT_SECONDS)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except (Exception, SystemExit) as error:
            if not self._registered.is_set():
                # No script runs yet, so the process can report why it cannot start.
                log.critical("the JobMaster cannot start", exc_info=error)
                self._failed_start, self._service = error, None
                self._registered.set()
                return
            # The JobMaster is the only link between this job and its cluster: without it the process must end.
            log.critical("the JobMaster crashed; ending the process", exc_info=error)
            self._bridge.crashed(error)
            end_session()
            raise

    async def _serve(self) -> None:
        token = load_token(Path(self._spec.token_file))
        tls = None if self._spec.tls is None else TlsLinks(self._spec.tls)
        client_tls = None if tls is None else tls.client
        system, services = real_system(), Services()
        async with contextlib.AsyncExitStack() as stack:
            offload = await self._offload(system, token, client_tls, services, stack)
            rpc = HttpRpcClient(token, offload, tls=client_tls)
            stack.push_async_callback(rpc.close)
            port = bind_port(self._spec.bind_host or self._spec.host, 0, announced=self._spec.host)
            identity = Identity(
                job_id=self._spec.graph.job_id,
                attempt=self._spec.attempt,
                address=port.address,
                task_manager=TaskManagerId(self._spec.task_manager),
                pid=os.getpid(),
                lineage=self._spec.lineage,
                epoch=self._spec.epoch,
            )
            service = JobMasterService(system, self._configuration, rpc, self._bridge, identity, self._spec.job_manager)
            service.master.link.lease = self.lease
            service.master.procedures.steps = DriverProcedures(
                self._spec,
                system.clock,
                lambda: self._bridge.runtime,
                lambda: self._bridge.functions,
                self._bridge.end_script,
                self._configuration[STOP_SAVEPOINT_TIMEOUT],
            )
            service.master.progress.store = DriverProgressStore(self._spec)
            self._service = service
            app = web.Application()
            app.middlewares.append(logging_refusals())
            secure(app, AccessPolicy(token, hosts=frozenset({self._spec.host})))
            known = locate_by_file(Path(self._spec.leader), services) if self._spec.leader else None
            served = SparkUiPages(service, self._bridge.ui_address, access_token(self._bridge.ui_key))
            stack.push_async_callback(served.close)
            app.add_routes(rpc_routes(served if known is None else TellsLeader(known, served), offload))
            app.add_routes(tunnel_routes(partial(connect_place, self._spec)))
            server = await serve_http(app, port, None if tls is None else tls.server)
            stack.push_async_callback(server.close)
            services.start("jobmaster", service.run())
            if self._configuration[EVENT_LOG_ENABLED]:
                services.start("event log", EventLogBound(self._spec, self._bridge.lasting_events).run())
            agent = AgentWatch(Path(self._spec.agent), self._configuration[ORPHAN_TIMEOUT], system.clock)
            services.start("agent watch", self._watch_agent(agent))
            if known is not None:
                follow_leader(known, service.master.link, rpc, services, is_informed=lambda: not agent.is_away)
            registration = asyncio.create_task(self._announce_registration(service))
            try:
                await services.run_until(self._stop)
            finally:
                registration.cancel()
                await services.cancel()

    async def _watch_agent(self, agent: AgentWatch) -> None:
        away = await agent.orphaned()
        await self._bridge.end_orphan(
            f"task manager {self._spec.task_manager} was away for {away:.0f} s (taskmanager.orphan-timeout)"
        )

    async def _offload(
        self,
        system: System,
        token: str,
        tls: ssl.SSLContext | None,
        services: Services,
        stack: contextlib.AsyncExitStack,
    ) -> Offload:
        """Return the Offload for large messages. Their BLOBs come only from the BLOB server, not from the HA store."""
        places = BlobPlaces(Path(self._spec.directory) / "blobs", ha="", server=self._job_manager)
        threads = BlobThreads(token, tls=tls, thread_name=f"{OWN_THREAD_PREFIX}-blob-transfer")
        link = await stack.enter_async_context(blob_link(system, self._configuration, places, threads, services))
        offload = Offload(
            CacheMessageBlobs(link.cache, link.uploads), system, minimum=self._configuration[OFFLOAD_MIN_SIZE]
        )
        services.start("offloaded messages", offload.run())
        return offload

    def _job_manager(self) -> str:
        return self._service.master.link.job_manager if self._service is not None else self._spec.job_manager

    async def _announce_registration(self, service: JobMasterService) -> None:
        await service.master.registered.wait()
        self._registered.set()
