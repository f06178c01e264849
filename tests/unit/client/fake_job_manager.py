"""A JobManager's REST API in a thread of the test, with jobs and logs that the test moves along."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from typing import Any

import msgspec
from aiohttp import web

from emberkeep.base.errors import Absent, Conflict, InvalidInput
from emberkeep.base.identity import Role
from emberkeep.base.ids import JobId, TaskManagerId
from emberkeep.blobs.model import permanent
from emberkeep.blocklist.model import Blocked, Blocklist, EvacuatedDrivers, Place, PlaceKind, entry_about, parse_end
from emberkeep.blocklist.tracker import BlocklistTracker
from emberkeep.chronicle.selection import Selection
from emberkeep.client.endpoint import Endpoint
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.log_records.scan import Contents, search
from emberkeep.protocol import (
    rest,
    rest_audit,
    rest_blobs,
    rest_blocklist,
    rest_cluster,
    rest_jobs,
    rest_login,
    rest_logs,
    rest_savepoints,
    rest_storage,
    rest_submission,
    rest_task_managers,
)
from emberkeep.protocol.chronicle.rest_events import EventList
from emberkeep.protocol.encoding.byte_range import parse_byte_range
from emberkeep.protocol.rest_tokens import CallerInfo
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo
from emberkeep.rest.cluster.event_shapes import event_of
from emberkeep.rest.jobs.checkpoint_shapes import checkpoint_statistics
from emberkeep.rest.jobs.savepoint_shapes import failure_cause
from emberkeep.rest.logs.records import ReadRecords, records_reply
from emberkeep.rest.ports import LogFound
from emberkeep.rest.serving.routing import parse_query
from tests.support.chronicle.memory import MemoryChronicle

TOKEN = "t" * 40
CONNECT_TOKEN = "its own/token"
NOW = 1_700_000_000_000


def job_info(
    job_id: str, name: str = "app.py", state: JobStatus = JobStatus.RUNNING, **own: Any
) -> rest_jobs.JobDetailsInfo:
    """A job's details with plain values; ``own`` overrides those of the extension."""
    extension: dict[str, Any] = {
        "attempt": 1,
        "driver": None,
        "waiting": "",
        "executors": [],
        "executors_wanted": 0,
        "queries": [],
        "attempts": [],
        "exit_code": None,
        "root_cause": "",
        "app_id": "",
        "active_stages": 0,
    }
    return rest_jobs.JobDetailsInfo(
        jid=JobId(job_id),
        name=name,
        is_stoppable=False,
        state=state,
        start_time=NOW,
        end_time=-1,
        duration=1500,
        max_parallelism=-1,
        now=NOW + 1500,
        timestamps={},
        vertices=[],
        status_counts={},
        plan=rest_jobs.JobPlan(jid=JobId(job_id), name=name, nodes=[]),
        emberkeep=rest_jobs.JobExtension(**(extension | own)),
    )


def job_summary(job: rest_jobs.JobDetailsInfo) -> rest_jobs.JobDetails:
    """The line of a job in the overview."""
    return rest_jobs.JobDetails(
        jid=job.jid,
        name=job.name,
        state=job.state,
        start_time=job.start_time,
        end_time=job.end_time,
        duration=job.duration,
        last_modification=job.start_time,
        tasks=rest_jobs.TaskCounts(),
        emberkeep=rest_jobs.JobSummaryExtension(
            attempt=job.emberkeep.attempt,
            executors=0,
            executors_wanted=job.emberkeep.executors_wanted,
            waiting=job.emberkeep.waiting,
            exit_code=job.emberkeep.exit_code,
            alarms=job.emberkeep.alarms,
            namespace=job.emberkeep.namespace,
        ),
    )


def task_manager_info(name: str, pid: int = 1) -> rest_task_managers.TaskManagerDetails:
    amount = rest_task_managers.Resources(cpu_cores=2, task_heap_memory=4096)
    return rest_task_managers.TaskManagerDetails(
        id=TaskManagerId(name),
        path="127.0.0.1:1",
        data_port=0,
        jmx_port=0,
        time_since_last_heartbeat=NOW,
        slots_number=2,
        free_slots=1,
        total_resource=amount,
        free_resource=amount,
        hardware=rest_task_managers.Hardware(cpu_cores=2, physical_memory=1, free_memory=1),
        emberkeep=rest_task_managers.TaskManagerExtension(
            state=rest_task_managers.TaskManagerState.ALIVE,
            instance="i" * 32,
            host="127.0.0.1",
            node_id="127.0.0.1",
            pid=pid,
            started=NOW,
            python="3.11",
            spark="4.3.0",
            java=17,
            driver_places_total=4,
            driver_places_available=4,
            drivers=[],
            disk_free_mb=10_000,
            memory_used_mb=100,
            cpu_percent=1.0,
            adopted=0,
            local_state=[],
        ),
        allocated_slots=[],
    )


def log_piece(log: FakeLog, offset: int, size: int) -> web.Response:
    """The answer with these bytes of a log."""
    piece = log.data[offset : offset + size]
    return web.Response(
        body=piece,
        headers={
            rest_logs.LOG_OFFSET_HEADER: str(offset),
            rest_logs.LOG_SIZE_HEADER: str(len(log.data)),
            rest_logs.LOG_COMPLETE_HEADER: "true" if log.complete and offset + len(piece) == len(log.data) else "false",
            **({rest_logs.LOG_KEPT_UNTIL_HEADER: str(log.kept_until)} if log.kept_until else {}),
        },
    )


def _status(error: Absent | Conflict | InvalidInput) -> int:
    if isinstance(error, Absent):
        return 404
    return 409 if isinstance(error, Conflict) else 400


def _no_log(request: web.Request) -> Absent:
    return Absent(f"no log {request.match_info['log']!r} exists here")


def _daemon(request: web.Request) -> str:
    return request.match_info.get("id", "")


class FakeLog:
    """One log of a driver, or with ``name`` of a daemon."""

    def __init__(
        self,
        attempt: int,
        kind: str,
        data: bytes = b"",
        *,
        complete: bool = False,
        name: str | None = None,
        executor: str = "",
        kept_until: int = 0,
        problem: str = "",
    ) -> None:
        self.kept_until = kept_until
        self.problem = problem
        self.name = name
        self.executor = executor
        self.attempt = attempt
        self.kind = kind
        self.data = data
        self.complete = complete

    @property
    def id(self) -> str:
        return self.name or f"tm-1~{self.attempt}-{self.kind}"

    def info(self, job_id: str) -> rest_logs.LogInfo:
        return rest_logs.LogInfo(
            name=self.id,
            size=len(self.data),
            mtime=NOW,
            kind=self.kind,
            complete=self.complete,
            id=self.id,
            taskmanager_id="tm-1",
            job_id=job_id,
            attempt=self.attempt,
            executor_id=self.executor,
            kept=bool(self.problem),
            problem=self.problem,
        )


class FakeJobManager:
    """Serves what the test has put into its fields. ``on_submit`` is called with each new job's id."""

    def __init__(self) -> None:
        self.makes_login_links = True
        self.caller_namespace = ""  # "": the caller sees all jobs
        self.url = ""
        self.jobs: dict[str, rest_jobs.JobDetailsInfo] = {}
        self.exceptions: list[rest_jobs.ExceptionInfo] = []  # of every job, newest first
        self.unreachable: list[str] = []  # task managers
        self.logs: dict[str, list[FakeLog]] = {}
        self.merged: list[rest_logs.MergedLogRecords] = []  # replies, in the order of the requests
        self.merged_queries: list[dict[str, str]] = []
        self.daemon_logs: dict[str, list[FakeLog]] = {}  # by task manager; "" for the JobManager's
        self.of_another_store: tuple[rest_cluster.TaskManagerOfAnotherStore, ...] = ()
        self.task_managers: list[rest_task_managers.TaskManagerDetails] = []  # each is heard whenever somebody looks
        self.epoch, self.started = 1, NOW
        self.config: list[tuple[str, str]] = []
        self.blocked: list[tuple[rest_blocklist.BlockRequest, str]] = []  # with "nodes/…" or "taskmanagers/…"
        self._heartbeats = 0
        self._blocklist = BlocklistTracker(Blocklist())
        self.upgrades: dict[str, UpgradeInfo] = {}  # by job id
        self.audit: list[rest_audit.AuditEntry] = []  # newest first
        self.audit_queries: list[dict[str, str]] = []
        self.chronicle = MemoryChronicle({}, lambda: 1_795_000_000_000)
        self.chronicle.begin(1, "store")
        self.storage = rest_storage.StorageInfo(location="/s", cluster="c", owned=True, problem="", hint="", data=[])
        self.savepoints: list[rest_savepoints.SavepointEntry] = []
        self.undisposed: set[str] = set()  # locations of savepoints that can be deleted
        self.leaders_gone = 0  # so many deletions are unknown to whoever is asked about them
        self._disposals: list[bool] = []  # True: it has deleted a savepoint
        self.blobs: dict[tuple[str, str], bytes] = {}  # by job id and key
        self.held: dict[tuple[str, str], list[str]] = {}
        self.groups: list[rest_blobs.BlobGroup] = []
        self.problems: list[rest_blobs.BlobProblem] = []
        self.pointers = JobPointers()  # of whatever job is asked for
        self.submissions: list[rest_submission.JobSubmission] = []
        self._keys: dict[str, str] = {}
        self.cancels: list[tuple[str, str | None]] = []
        self.requests: list[str] = []
        self.failures: list[int] = []  # statuses that the next requests are answered with
        self.unanswered: list[int] = []  # the next changes are made, and answered so; 0: the connection breaks
        self.ahead = 0.0  # seconds that its clock is ahead of the client's
        self.redirect_to = ""
        self.page_size = 1 << 20  # bytes of a log per answer
        self.on_submit: Callable[[str], None] = lambda job_id: None
        self.on_cancel: Callable[[str, str | None], None] = lambda job_id, grace: None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.url, TOKEN, "a test")

    @contextmanager
    def serving(self, port: int = 0) -> Iterator[FakeJobManager]:
        """Serve on loopback while this context lasts."""
        loop = asyncio.new_event_loop()
        ready = threading.Event()
        thread = threading.Thread(target=self._serve, args=(loop, port, ready), name="fake-job-manager")
        thread.start()
        assert ready.wait(120)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join(60)
            assert not thread.is_alive()

    def _serve(self, loop: asyncio.AbstractEventLoop, port: int, ready: threading.Event) -> None:
        asyncio.set_event_loop(loop)
        app = web.Application(middlewares=[self._check], client_max_size=1 << 30)
        for method, path, handler in (
            ("GET", "/overview", self._overview),
            ("GET", "/identity", self._identity),
            ("GET", "/jobmanager/config", self._config),
            ("POST", "/login-links", self._login_link),
            ("GET", "/jobs/overview", self._jobs),
            ("POST", "/jobs", self._submit),
            ("GET", "/jobs/{jid}", self._job),
            ("PATCH", "/jobs/{jid}", self._cancel),
            ("GET", "/jobs/{jid}/connect", self._connect),
            ("GET", "/jobs/{jid}/exceptions", self._exceptions),
            ("GET", "/jobs/{jid}/checkpoints", self._checkpoints),
            ("GET", "/jobs/{jid}/logs", self._job_logs),
            ("GET", "/jobs/{jid}/merged-logs", self._merged_logs),
            ("GET", "/jobs/{jid}/logs/{log}", self._read_log),
            ("GET", "/jobs/{jid}/logs/{log}/records", self._search_log),
            ("POST", "/jobs/{jid}/blobs", self._open_group),
            ("GET", "/jobs/{jid}/blobs", self._list_blobs),
            ("GET", "/blobs", self._list_blobs),
            ("PUT", "/jobs/{jid}/blobs/{key}", self._put_blob),
            ("GET", "/jobs/{jid}/blobs/{key}", self._get_blob),
            ("POST", "/blobs/verify", self._verify),
            ("POST", "/jobs/{jid}/blobs/verify", self._verify),
            ("POST", "/blobs/gc", self._collect),
            ("GET", "/taskmanagers", self._task_managers),
            ("GET", "/taskmanagers/{id}", self._task_manager),
            ("POST", "/taskmanagers/{id}/stop", self._stop_task_manager),
            ("GET", "/taskmanagers/{id}/logs", self._own_logs),
            ("GET", "/taskmanagers/{id}/logs/{log}", self._read_own_log),
            ("GET", "/blocklist", self._listed),
            ("PUT", "/blocklist/{kind}/{name}", self._block),
            ("DELETE", "/blocklist/{kind}/{name}", self._unblock),
            ("GET", "/jobs/{jid}/upgrade", self._upgrade),
            ("DELETE", "/jobs/{jid}/upgrade", self._cancel_upgrade),
            ("GET", "/audit", self._audit),
            ("GET", "/events", self._events),
            ("GET", "/events/jobs/{jobid}", self._events),
            ("GET", "/storage", self._storage),
            ("GET", "/savepoints", self._savepoints),
            ("POST", "/savepoint-disposal", self._dispose),
            ("GET", "/savepoint-disposal/{id}", self._disposal),
            ("POST", "/storage/{what}", self._settle_storage),
            ("GET", "/jobmanager/logs", self._own_logs),
            ("GET", "/jobmanager/logs/{log}", self._read_own_log),
            ("GET", "/jobmanager/logs/{log}/records", self._search_own_log),
        ):
            app.router.add_route(method, f"/v1{path}", handler)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", port)
        loop.run_until_complete(site.start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()

    @web.middleware
    async def _check(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append(f"{request.method} {request.path}")
        if self.redirect_to:
            return web.Response(status=307, headers={"Location": self.redirect_to + request.path_qs})
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return problem(401, "a valid token is missing")
        if self.failures:
            return problem(self.failures.pop(0), "told to fail", field="some.field", hint="try this")
        try:
            response: web.StreamResponse = await handler(request)
        except (Absent, Conflict, InvalidInput) as error:
            return problem(
                _status(error),
                error.message,
                field=error.field if isinstance(error, InvalidInput) else None,
                hint=error.hint,
            )
        response.headers["Date"] = formatdate(time.time() + self.ahead, usegmt=True)
        if request.method == "GET" or not self.unanswered:
            return response
        status = self.unanswered.pop(0)
        if status == 0 and request.transport is not None:
            request.transport.close()
        return problem(status or 504, "who knows")

    async def _audit(self, request: web.Request) -> web.Response:
        self.audit_queries.append(dict(request.query))
        before = request.query.get("before", "~")
        older = [entry for entry in self.audit if entry.id < before]
        page = older[:10]
        return reply(rest_audit.AuditList(entries=page, next=page[-1].id if len(older) > len(page) else ""))

    async def _events(self, request: web.Request) -> web.Response:
        query = request.query
        selection = Selection(
            types=frozenset(query.getall("type", [])),
            since_ms=int(query.get("since", 0)),
            before=query.get("before", ""),
            after=query.get("after"),
            limit=min(2, int(query.get("limit", 100))),
        )
        page = await self.chronicle.read(request.match_info.get("jobid", ""), selection)
        return reply(EventList(events=[event_of(each) for each in page.occurrences], next=page.next))

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        """A tunnel to a Spark Connect server that never says anything."""
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(CONNECT_TOKEN)
        await socket.receive()
        return socket

    async def _dispose(self, request: web.Request) -> web.Response:
        path = msgspec.json.decode(await request.read(), type=rest_savepoints.SavepointPath).savepoint_path
        self._disposals.append(path in self.undisposed)
        self.undisposed.discard(path)
        return reply(rest_savepoints.TriggerResponse(request_id=str(len(self._disposals) - 1)), 202)

    async def _disposal(self, request: web.Request) -> web.Response:
        if self.leaders_gone:
            self.leaders_gone -= 1
            raise Absent("no such operation is known")
        cause = (
            None if self._disposals[int(request.match_info["id"])] else failure_cause("Absent", "no savepoint there")
        )
        return reply(
            rest_savepoints.DisposalStatus(
                status=rest_savepoints.QueueStatus(id=rest_savepoints.OperationStatus.COMPLETED),
                operation=rest_savepoints.SavepointOutcome(failure_cause=cause),
            )
        )

    async def _savepoints(self, _request: web.Request) -> web.Response:
        return reply(rest_savepoints.SavepointList(savepoints=self.savepoints))

    async def _storage(self, _request: web.Request) -> web.Response:
        return reply(self.storage)

    async def _settle_storage(self, request: web.Request) -> web.Response:
        purges = request.match_info["what"] == "purge"
        if purges and self.storage.used_by and request.query.get("force") != "true":
            return problem(409, "jobs of another job store may use the data in the storage")
        data = [] if purges else self.storage.data
        self.storage = msgspec.structs.replace(self.storage, owned=True, problem="", hint="", data=data)
        return reply(self.storage)

    async def _login_link(self, _request: web.Request) -> web.Response:
        link = rest_login.LoginLink(
            path="/login?code=once", job_manager=self.url.removeprefix("http://"), valid_for=600_000
        )
        return reply(link, 201) if self.makes_login_links else problem(404, "nothing exists at /v1/login-links")

    async def _config(self, _request: web.Request) -> web.Response:
        return reply([rest_cluster.ConfigurationEntry(key=key, value=value, origin="-D") for key, value in self.config])

    async def _overview(self, _request: web.Request) -> web.Response:
        extension = rest_cluster.ClusterExtension(
            version="0.1.0",
            epoch=self.epoch,
            job_manager=self.url.removeprefix("http://"),
            started=self.started,
            jobs_by_status={},
            driver_places_total=4,
            driver_places_available=4,
            taskmanagers_away=0,
            taskmanagers_of_another_store=self.of_another_store,
            storage_problem=self.storage.problem,
            storage_unneeded=len(self.storage.data),
        )
        return reply(
            rest_cluster.ClusterOverview(
                taskmanagers=len(self.task_managers),
                slots_total=2,
                slots_available=1,
                jobs_running=0,
                jobs_finished=0,
                jobs_cancelled=0,
                jobs_failed=0,
                flink_version="",
                flink_commit="",
                emberkeep=extension,
            )
        )

    async def _identity(self, _: web.Request) -> web.Response:
        return reply(CallerInfo(name="somebody", role=Role.SUBMITTER, namespace=self.caller_namespace))

    async def _jobs(self, request: web.Request) -> web.Response:
        namespace = request.query.get("namespace", "")
        listed = [job for job in self.jobs.values() if namespace in ("", job.emberkeep.namespace)]
        newest_first = sorted(listed, key=lambda job: job.start_time, reverse=True)
        return reply(rest_jobs.MultipleJobsDetails(jobs=[job_summary(job) for job in newest_first]))

    def _known(self, request: web.Request) -> rest_jobs.JobDetailsInfo:
        try:
            return self.jobs[request.match_info["jid"]]
        except KeyError:
            raise Absent(f"there is no job {request.match_info['jid']}") from None

    async def _job(self, request: web.Request) -> web.Response:
        return reply(self._known(request))

    async def _exceptions(self, request: web.Request) -> web.Response:
        self._known(request)
        history = rest_jobs.ExceptionHistory(entries=self.exceptions, truncated=False)
        return reply(
            rest_jobs.JobExceptions(
                root_exception=None, timestamp=None, all_exceptions=[], truncated=False, exception_history=history
            )
        )

    async def _checkpoints(self, request: web.Request) -> web.Response:
        self._known(request)
        return reply(checkpoint_statistics(self.pointers))

    async def _submit(self, request: web.Request) -> web.Response:
        data = await request.read()
        if b'"blob":' in data:
            reference = msgspec.json.decode(data, type=rest_submission.OffloadedSubmission)
            key = f"t-{reference.blob.sha256}"
            if (reference.jobid, key) not in self.blobs:
                return problem(424, f"{key} is not here")
            data = self.blobs[reference.jobid, key]
        submission = msgspec.json.decode(data, type=rest_submission.JobSubmission)
        key = request.headers[rest_submission.IDEMPOTENCY_HEADER]
        known = key in self._keys
        if not known:
            if submission.jobid in self.jobs:
                raise Conflict(f"job id {submission.jobid} is taken by another submission")
            here = {sha256[2:] for job, sha256 in self.blobs if job == submission.jobid}
            missing = [artefact.name for artefact in submission.artefacts if artefact.sha256 not in here]
            if missing:
                return problem(424, f"{missing} are not here")
            self.submissions.append(submission)
            self._keys[key] = submission.jobid or f"{len(self._keys) + 1:032x}"
            for artefact in submission.artefacts:
                self.held[submission.jobid, str(permanent(artefact.sha256))] = ["job"]
            accepted = job_info(self._keys[key], submission.name)
            self.jobs[accepted.jid] = msgspec.structs.replace(accepted, start_time=NOW + len(self._keys))
            self.on_submit(self._keys[key])
        job_id = JobId(self._keys[key])
        return reply(rest_submission.JobSubmitted(jobid=job_id, job_url=f"/v1/jobs/{job_id}", created=not known), 202)

    async def _cancel(self, request: web.Request) -> web.Response:
        job = self._known(request)
        if job.state.is_globally_terminal and job.state is not JobStatus.CANCELED:
            raise Conflict(f"job {job.jid} has ended: it is {job.state.value}")
        grace = request.query.get("grace")
        self.cancels.append((job.jid, grace))
        self.on_cancel(job.jid, grace)
        return reply(rest.Empty(), 202)

    async def _job_logs(self, request: web.Request) -> web.Response:
        job_id = self._known(request).jid
        logs = [log.info(job_id) for log in self.logs.get(job_id, [])]
        return reply(rest_logs.LogList(logs=logs, unreachable=self.unreachable))

    async def _read_log(self, request: web.Request) -> web.Response:
        logs = {log.id: log for log in self.logs.get(request.match_info["jid"], [])}
        if request.match_info["log"] not in logs:
            raise _no_log(request)
        return await self._piece(request, logs[request.match_info["log"]])

    async def _merged_logs(self, request: web.Request) -> web.Response:
        self.merged_queries.append(dict(request.query))
        return reply(self.merged.pop(0))

    async def _search_log(self, request: web.Request) -> web.Response:
        logs = {log.id: log for log in self.logs.get(request.match_info["jid"], [])}
        return self._found(request, logs[request.match_info["log"]])

    async def _search_own_log(self, request: web.Request) -> web.Response:
        logs = {log.id: log for log in self.daemon_logs.get(_daemon(request), [])}
        return self._found(request, logs[request.match_info["log"]])

    def _found(self, request: web.Request, log: FakeLog) -> web.Response:
        query = parse_query(request, ReadRecords)
        contents = Contents(lambda at, count: log.data[at : at + count], len(log.data), log.complete, lambda ms: ms)
        found = search(contents, query.of(None).search)
        complete = log.complete and found.end == len(log.data)
        return reply(records_reply(LogFound(found=found, size=len(log.data), complete=complete)))

    async def _own_logs(self, request: web.Request) -> web.Response:
        return reply(rest_logs.LogList(logs=[log.info("") for log in self.daemon_logs.get(_daemon(request), [])]))

    async def _read_own_log(self, request: web.Request) -> web.Response:
        for log in self.daemon_logs.get(_daemon(request), []):
            if log.id == request.match_info["log"]:
                return await self._piece(request, log)
        raise _no_log(request)

    async def _piece(self, request: web.Request, log: FakeLog) -> web.Response:
        if "range" in request.query:
            wanted = parse_byte_range(request.query["range"])
            first = wanted.offset if wanted.offset >= 0 else max(0, len(log.data) + wanted.offset)
            size = self.page_size if wanted.count is None else min(self.page_size, wanted.count)
            return log_piece(log, first, size)
        offset = int(request.query["offset"])
        clock = asyncio.get_running_loop().time
        deadline = clock() + float(request.query["wait"])
        while len(log.data) <= offset and not log.complete and clock() < deadline:  # noqa: ASYNC110 - set by the test
            await asyncio.sleep(0.01)
        return log_piece(log, offset if offset <= len(log.data) else 0, self.page_size)  # it was replaced

    async def _open_group(self, request: web.Request) -> web.Response:
        group = msgspec.json.decode(await request.read(), type=rest_blobs.BlobGroup)
        job = self.jobs.get(request.match_info["jid"])
        if job is not None and job.state.is_globally_terminal:
            return problem(409, f"job {job.jid} has ended and takes no more uploads")
        self.groups.append(group)
        here = {key for job, key in self.blobs if job == request.match_info["jid"]}
        return reply(
            rest_blobs.BlobGroupOpened(
                missing=[item.sha256 for item in group.blobs if f"{item.kind}-{item.sha256}" not in here]
            )
        )

    async def _put_blob(self, request: web.Request) -> web.Response:
        owner, key = request.match_info["jid"], request.match_info["key"]
        data = await request.read()
        if request.content_length != len(data) or hashlib.sha256(data).hexdigest() != key[2:]:
            return problem(400, "the content has another hash", field="key")
        self.blobs[owner, key] = data
        return reply(rest_blobs.BlobStored(jobid=JobId(owner), key=key, size=len(data)), 201)

    async def _get_blob(self, request: web.Request) -> web.Response:
        data = self.blobs.get((request.match_info["jid"], request.match_info["key"]))
        return problem(404, "there is no such BLOB") if data is None else web.Response(body=data)

    async def _list_blobs(self, request: web.Request) -> web.Response:
        job = request.match_info.get("jid")
        infos = [
            rest_blobs.BlobInfo(
                jobid=JobId(owner),
                key=key,
                size=len(data),
                local=True,
                ha=key.startswith("p"),
                references=self.held.get((owner, key), []),
                state="referenced" if self.held.get((owner, key)) else "staged",
            )
            for (owner, key), data in self.blobs.items()
            if job in (None, owner)
        ]
        return reply(rest_blobs.BlobList(blobs=infos, bytes=sum(info.size for info in infos)))

    async def _verify(self, request: web.Request) -> web.Response:
        job = request.match_info.get("jid")
        found = [item for item in self.problems if job in (None, item.jobid)]
        return reply(rest_blobs.BlobCheck(checked=len(self.blobs), bytes=4096, problems=found))

    async def _collect(self, _request: web.Request) -> web.Response:
        unused = [name for name in self.blobs if not self.held.get(name)]
        for name in unused:
            del self.blobs[name]
        return reply(rest_blobs.BlobCollection(deleted=len(unused)))

    async def _task_managers(self, _request: web.Request) -> web.Response:
        self._heartbeats += 1
        heard: list[rest_task_managers.TaskManagerSummary] = [
            msgspec.structs.replace(task_manager, time_since_last_heartbeat=NOW + self._heartbeats)
            for task_manager in self.task_managers
        ]
        return reply(rest_task_managers.TaskManagers(taskmanagers=heard))

    async def _task_manager(self, request: web.Request) -> web.Response:
        for task_manager in self.task_managers:
            if task_manager.id == request.match_info["id"]:
                return reply(task_manager)
        raise Absent(f"no task manager {request.match_info['id']} is registered")

    async def _stop_task_manager(self, request: web.Request) -> web.Response:
        """End it at once."""
        await self._task_manager(request)
        self.task_managers = [each for each in self.task_managers if each.id != request.match_info["id"]]
        return reply(rest.Empty(), 202)

    async def _listed(self, _request: web.Request) -> web.Response:
        found: dict[PlaceKind, dict[Any, rest_blocklist.BlockedNodeInfo]] = {kind: {} for kind in PlaceKind}
        for entry in self._blocklist.blocklist.entries:
            found[entry.place.kind][entry.id] = entry_info(entry)
        return reply(
            rest_blocklist.BlocklistInfo(
                blocked_task_managers=dict(found[PlaceKind.TASK_MANAGER]), blocked_nodes=found[PlaceKind.NODE]
            )
        )

    async def _block(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read(), type=rest_blocklist.BlockRequest)
        place = _place(request)
        now = int(1000 * (time.time() + self.ahead))
        end = parse_end(None if body.end_timestamp is None else int(body.end_timestamp), now)
        entry = entry_about(
            place,
            action=body.action,
            start_ms=NOW,
            end_ms=end,
            causes=(" ".join(body.cause.split()),),
            drivers=body.drivers or EvacuatedDrivers.RESTART,
        )
        made, _ = self._blocklist.put(
            entry, merge=body.allow_merge in (True, "true"), keep_drivers=body.drivers is None
        )
        self.blocked.append((body, f"{request.match_info['kind']}/{place.id}"))
        return reply(entry_info(made), 201)

    async def _unblock(self, request: web.Request) -> web.Response:
        self._blocklist.remove(_place(request), NOW)
        return web.Response()

    async def _upgrade(self, request: web.Request) -> web.Response:
        try:
            return reply(self.upgrades[request.match_info["jid"]])
        except KeyError:
            raise Absent("the job is part of no upgrade that is known") from None

    async def _cancel_upgrade(self, request: web.Request) -> web.Response:
        """Refuse a repeated request, as a JobManager does that keeps no account of them."""
        job_id = request.match_info["jid"]
        upgrade = self.upgrades[job_id]
        if upgrade.phase is not UpgradePhase.WATCHING:
            raise Conflict(f"it was too late: the upgrade is {upgrade.phase.value}")
        self.upgrades[job_id] = msgspec.structs.replace(upgrade, phase=UpgradePhase.CANCELLING, canceled_by="ana")
        return reply(self.upgrades[job_id])


def _place(request: web.Request) -> Place:
    kind = PlaceKind.NODE if request.match_info["kind"] == "nodes" else PlaceKind.TASK_MANAGER
    return Place(kind, request.match_info["name"])


def entry_info(entry: Blocked) -> rest_blocklist.BlockedNodeInfo:
    """Describe an entry. Like a JobManager, say nothing of drivers unless they stay."""
    return rest_blocklist.BlockedNodeInfo(
        action=entry.action,
        start_timestamp=entry.start_ms,
        end_timestamp=entry.end_ms,
        cause=entry.cause,
        drivers=EvacuatedDrivers.WAIT if entry.drivers is EvacuatedDrivers.WAIT else None,
        task_managers=[],
    )


def reply(body: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def problem(status: int, detail: str, *, field: str | None = None, hint: str | None = None) -> web.Response:
    body = rest.Problem(title="problem", status=status, detail=detail, errors=[detail], field=field, hint=hint)
    return web.Response(body=msgspec.json.encode(body), status=status, content_type=rest.PROBLEM_MEDIA_TYPE)
