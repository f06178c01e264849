"""Server processes to measure: started for one measurement, ended with it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from bench.commands import end
from emberkeep.adapters.http.token_file import load_token
from emberkeep.client.clusters.daemon_process import DaemonCommand, start_daemon
from emberkeep.client.endpoint import Endpoint

_SETTINGS = ("rest.port=0", "log.level=warning")


@dataclass(frozen=True)
class Server:
    """A process that serves at ``address`` ("host:port")."""

    address: str
    process: psutil.Process
    token: str = ""
    ca: str = ""  # the file with its CA; "" if it does not encrypt

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(f"http://{self.address}", self.token)

    def cpu_seconds(self) -> float:
        """User and system time of the process so far."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def resident_bytes(self) -> int:
        return int(self.process.memory_info().rss)


@contextmanager
def job_manager(directory: Path, *, encryption: str = "none", settings: Sequence[str] = ()) -> Iterator[Server]:
    """A JobManager without task managers, with its durable store below ``directory``. ``settings``: KEY=VALUE.

    Most of what is measured is compared with limits that do not encrypt.
    """
    definitions = (*_SETTINGS, f"security.encryption={encryption}", *settings)
    arguments = ("--state-dir", str(directory), *(word for text in definitions for word in ("-D", text)))
    daemon = start_daemon(DaemonCommand("jobmanager", arguments, directory / "output"))
    try:
        ready = asyncio.run(daemon.ready())
        address = urlsplit(ready.url).netloc
        yield Server(address, psutil.Process(daemon.process.pid), load_token(Path(ready.token_file)), ready.ca)
    finally:
        end(daemon.process)


@contextmanager
def echo_server(answer_bytes: int) -> Iterator[Server]:
    """See ``bench.load.echo_server``."""
    command = [sys.executable, "-m", "bench.load.echo_server", str(answer_bytes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        if not address:
            raise SystemExit("the echo server did not start")
        yield Server(address, psutil.Process(process.pid))
    finally:
        end(process)
