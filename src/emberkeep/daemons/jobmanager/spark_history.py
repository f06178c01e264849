"""The Spark UIs of attempts that have ended: Spark's History Server, started on demand, over copies of event logs.

One process serves all users. It listens on loopback and asks for a key of this object. Each page is read for one
attempt, and only pages of that attempt's application are read (``history_page``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import psutil
import structlog

from emberkeep.adapters.shared_storage.event_log_copier import CopiedLog, EventLogCopier
from emberkeep.adapters.shared_storage.event_logs import log_name
from emberkeep.base.clock import since_boot
from emberkeep.base.errors import EmberkeepError, OverQuota, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.daemons.spark_page_pieces import PagesInPieces
from emberkeep.daemons.spark_pages import check_spark_path, read_spark_page
from emberkeep.protocol.messages.job_masters import SparkUiRead
from emberkeep.spark.jvm.history_server import APPLICATIONS, NO_APPLICATION, history_page, prepare_history_server
from emberkeep.spark.jvm.spark_ui import access_token

log = structlog.get_logger(__name__)

IDLE_SECONDS = 600.0
_LOOK_SECONDS = 5.0
_PAGE_SECONDS = 60.0  # the first page of an application waits until its log is read
_START_SECONDS = 40.0
_PAUSE_SECONDS = 10.0  # after a start that failed
_STOP_SECONDS = 5.0
_AT_ONCE = 4
_MOST_WAITING = 32
_MOST_OUTPUT = 16 * 1024**2
_TAIL = 2000
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC

_Attempt = tuple[JobId, int]
Prepare = Callable[[Path, Path, bytes, Mapping[str, str]], list[str]]


@dataclass(frozen=True)
class _LocatedPage:
    """Where a page is, and what opens it. ``address``: of the server; "" if the page is a redirect to ``path``."""

    address: str
    path: str
    token: str


class SparkHistory:
    """Reads pages of ended attempts. Belongs to one event loop; ``run`` must run.

    ``directory``: for the copies and the server's files; it is this object's alone, as is the directory beside it in
    which copies begin. ``checkpoints``: the directory of all jobs' checkpoints. ``prepare`` returns the server's
    command, as ``prepare_history_server`` does.
    """

    def __init__(
        self,
        directory: Path,
        checkpoints: Path,
        prepare: Prepare = prepare_history_server,
        now: Callable[[], float] = since_boot,
    ) -> None:
        self._directory = directory
        self._logs = directory / "logs"
        self._copier = EventLogCopier(checkpoints, directory.with_name(f"{directory.name}-copies"))
        self._prepare = prepare
        self._now = now
        self._key = b""  # of the process: pages of an earlier one do not open this one
        self._applications: dict[_Attempt, str] = {}  # the least recently used first
        self._owners: dict[str, _Attempt] = {}  # of each application that the server may have in its memory
        self._process: asyncio.subprocess.Process | None = None
        self._address = ""
        self._used_at = now()
        self._failed_at: float | None = None
        self._reading = asyncio.Semaphore(_AT_ONCE)
        self._in_pieces = PagesInPieces(now)
        self._over = False  # the term of leadership
        self._waiting = Counter[_Attempt]()
        self._changing = asyncio.Lock()  # the process and the copies

    @property
    def pid(self) -> int | None:
        """The server's process id; None while it does not run."""
        process = self._process
        return None if process is None or process.returncode is not None else process.pid

    async def run(self) -> None:
        """End the server when no page was read for IDLE_SECONDS, and at last, when this is cancelled."""
        async with self._changing:
            await self._end()  # an earlier JobManager that was killed has left copies
        await asyncio.to_thread(self._copier.clear)
        try:
            while True:
                await asyncio.sleep(_LOOK_SECONDS)
                async with self._changing:
                    if self._process is not None and not self._waiting and self._now() - self._used_at >= IDLE_SECONDS:
                        log.info("the History Server is idle; ending it")
                        await self._end()
                    await asyncio.to_thread(self._shorten_output)
        finally:
            self._over = True
            await self._end()
            self._copier.close()

    async def read(self, job_id: JobId, attempt: int, path: str, base: str, *, in_pieces: bool = False) -> SparkUiRead:
        """Return a page of an attempt that has ended. See ``rest.ports.SparkUis``."""
        check_spark_path(path, base)
        async with self._place((job_id, attempt)):
            return await self._read((job_id, attempt), path, base, in_pieces)

    async def following(self, job_id: JobId, attempt: int, more: str) -> SparkUiRead:
        """Return the next piece of a page. See ``rest.ports.SparkUis``."""
        async with self._place((job_id, attempt)), self._reading:
            return await self._in_pieces.following(more, (job_id, attempt))

    async def abandon(self, job_id: JobId, attempt: int, more: str) -> None:
        """Close a page that nobody reads any longer. See ``rest.ports.SparkUis``."""
        await self._in_pieces.abandon(more, (job_id, attempt))

    @contextlib.asynccontextmanager
    async def _place(self, attempt: _Attempt) -> AsyncIterator[None]:
        """Read within the bounds of time and number. Raises OverQuota, RetryLater."""
        waiting = self._waiting.total()
        if waiting >= _MOST_WAITING or self._waiting[attempt] >= _MOST_WAITING // 2:
            raise OverQuota("too many pages of Spark UIs of ended attempts are asked for at once", seconds=1.0)
        self._waiting[attempt] += 1
        try:
            async with asyncio.timeout(_PAGE_SECONDS):
                yield
        except TimeoutError:
            raise RetryLater(
                f"Spark's History Server did not answer within {_PAGE_SECONDS:g} s",
                hint="a large event log takes time when it is opened first: try again",
            ) from None
        finally:
            self._waiting[attempt] -= 1
            if not self._waiting[attempt]:
                del self._waiting[attempt]
            self._used_at = self._now()

    async def _read(self, attempt: _Attempt, path: str, base: str, in_pieces: bool) -> SparkUiRead:
        """Return the page. A copy is made outside the lock, since the storage may hang."""
        page = None
        async with self._changing:
            if attempt in self._applications:
                page = await self._located(attempt, path)
        if page is None:
            self._require_term()
            async with self._copier.copied(*attempt) as copied, self._changing:
                self._require_term()
                if attempt not in self._applications:
                    await self._publish(attempt, copied)
                page = await self._located(attempt, path)
        if not page.address:
            return SparkUiRead(status=302, content_type="", location=page.path, body=b"")
        async with self._reading:
            return await self._in_pieces.read(
                page.address, page.path, token=page.token, base=base, in_pieces=in_pieces, owner=attempt
            )

    def _keep_only(self, app_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # the end of the term has just removed all
            for copy in self._logs.iterdir():
                if copy.name != log_name(app_id):
                    shutil.rmtree(copy, ignore_errors=True)

    def _require_term(self) -> None:
        if self._over:
            raise RetryLater("this JobManager is not the leader any more", hint="open the Spark UI again")

    async def _located(self, attempt: _Attempt, path: str) -> _LocatedPage:
        """Return where the page of an attempt is, whose log is here; start the server if it does not run."""
        app_id = self._applications[attempt] = self._applications.pop(attempt)
        page = history_page(app_id, path)
        if page.moved:
            return _LocatedPage("", page.path, "")
        if self.pid is None:
            # The server reads all copies when it starts, and one of them may be why it has ended.
            self._applications, self._owners = {attempt: app_id}, {app_id: attempt}
            await asyncio.to_thread(self._keep_only, app_id)
            await self._start()
        return _LocatedPage(self._address, page.path, access_token(self._key))

    async def _publish(self, attempt: _Attempt, copied: CopiedLog) -> None:
        """Show a copy to the server. The least recently used ones make room."""
        owner = self._owners.get(copied.app_id, attempt)
        if owner != attempt:
            log.warning(
                "event logs of two attempts have one name; restarting the History Server, which knows them by it",
                application=copied.app_id,
                jobs=[owner[0], attempt[0]],
            )
            await self._end()
        self._copier.publish(copied, self._logs)
        self._owners[copied.app_id] = attempt
        self._applications[attempt] = copied.app_id
        while len(self._applications) > APPLICATIONS:
            oldest = self._applications.pop(next(iter(self._applications)))
            await asyncio.to_thread(shutil.rmtree, self._logs / log_name(oldest), ignore_errors=True)

    # --- the process --------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._failed_at is not None and self._now() - self._failed_at < _PAUSE_SECONDS:
            raise RetryLater(f"Spark's History Server has just failed to start: see {self._output}")
        self._failed_at, self._address, self._key = self._now(), "", secrets.token_bytes(32)
        process = None
        try:
            command = await asyncio.to_thread(self._prepare, self._directory, self._logs, self._key, os.environ)
            self._output.unlink(missing_ok=True)
            with os.fdopen(os.open(self._output, _APPENDING, 0o600), "ab") as output:
                process = self._process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "emberkeep.daemons.history_server", str(os.getpid()), *command),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._directory,
                    env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
                    start_new_session=True,
                )
            self._require_term()  # its end knows only processes that were there
            self._address = await self._listening(process)
        except OSError as error:
            raise RetryLater(f"Spark's History Server cannot be started: {error}") from error
        except EmberkeepError as error:
            log.error("Spark's History Server cannot be started", reason=str(error))
            raise
        finally:
            if process is not None and not self._address:
                await self._kill(process)
        self._failed_at = None
        log.info("started Spark's History Server", pid=process.pid)

    @property
    def _output(self) -> Path:
        return self._directory / "history-server.out"

    async def _listening(self, process: asyncio.subprocess.Process) -> str:
        """Return the server's address once it is ready. Raises RetryLater.

        It listens before it knows its paths, and until then answers each request with the list of all applications.
        """
        until = self._now() + _START_SECONDS
        while self._now() < until:
            if process.returncode is not None:
                raise RetryLater(f"Spark's History Server has ended at its start: {self._last_output()}")
            with contextlib.suppress(psutil.Error, RetryLater):
                for each in await asyncio.to_thread(psutil.Process(process.pid).net_connections, "tcp"):
                    address = f"http://127.0.0.1:{each.laddr.port}"
                    if each.status == psutil.CONN_LISTEN and await self._is_ready(address):
                        return address
            await asyncio.sleep(0.1)
        raise RetryLater(f"Spark's History Server did not start within {_START_SECONDS:g} s: {self._last_output()}")

    async def _is_ready(self, address: str) -> bool:
        page = await read_spark_page(address, NO_APPLICATION, token=access_token(self._key), base="")
        return page.status == HTTPStatus.NOT_FOUND

    def _last_output(self) -> str:
        try:
            return self._output.read_bytes()[-_TAIL:].decode(errors="replace").strip()
        except OSError as error:
            return str(error)

    def _shorten_output(self) -> None:
        with contextlib.suppress(OSError):
            if self._output.stat().st_size > _MOST_OUTPUT:
                os.truncate(self._output, 0)  # the server appends

    async def _end(self) -> None:
        """End the process, if there is one, and remove all files."""
        await self._in_pieces.close()
        process, self._process, self._address = self._process, None, ""
        self._applications.clear()
        self._owners.clear()
        if process is not None:
            await self._kill(process)
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        self._address = ""
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STOP_SECONDS):
                await process.wait()
                return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
