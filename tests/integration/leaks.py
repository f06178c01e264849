"""Finds what a run has left behind: processes, listening ports, files in temporary directories.

Processes are known by a variable of their environment, which everything that they start inherits, and by paths in their
command lines; a pid alone says nothing on a machine where others work too.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from emberkeep.base.configuration.options.task_managers import JOB_ENVIRONMENT
from emberkeep.base.configuration.sources import environment_variable
from emberkeep.base.processes.process_identity import ProcessIdentity, identify

# Not one of ours (EMBERKEEP_…): those are not handed on to jobs.
VARIABLE = "LEAK_CHECK_RUN"
_LOOK_EVERY = 0.5  # seconds
_CHECKOUT = Path(__file__).resolve().parents[2]
_GONE_SECONDS = 60.0


@dataclass(frozen=True)
class Seen:
    """A process of the run while it lived."""

    identity: ProcessIdentity
    command: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.identity.pid}: {' '.join(self.command)[:300]}"


@dataclass
class Traces:
    """Of all that is started with ``environment()``. ``directory``: what the run may write to; it is the caller's."""

    directory: Path
    marker: str = field(default_factory=lambda: secrets.token_hex(8))
    seen: dict[ProcessIdentity, Seen] = field(default_factory=dict)
    ports: set[str] = field(default_factory=set)
    strays: set[str] = field(default_factory=set)  # files outside ``directory`` that were in use

    @property
    def temporary(self) -> Path:
        return self.directory / "tmp"

    def environment(self) -> dict[str, str]:
        """To be added to what the run is started with."""
        self.temporary.mkdir(parents=True, exist_ok=True)
        inherited = {environment_variable(JOB_ENVIRONMENT.key): VARIABLE}  # by drivers and executors, too
        return {VARIABLE: self.marker, "TMPDIR": str(self.temporary), **inherited}

    def processes(self) -> list[Seen]:
        """The live ones."""
        found = [self._look_at(entry) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return sorted(filter(None, found), key=lambda seen: seen.identity.pid)

    def find(self, *words: str) -> list[Seen]:
        """Live processes whose command line contains all the words."""
        return [seen for seen in self.processes() if all(word in " ".join(seen.command) for word in words)]

    def look(self) -> None:
        """Note what is there now, ports and used files too."""
        for seen in self.processes():
            self.seen[seen.identity] = seen
            self._look_at_files(seen)
        pids = {identity.pid for identity in self.seen}
        self.ports |= {address for address, pid in _listening() if pid in pids}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look again and again while the block runs."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_LOOK_EVERY):
                self.look()

        thread = threading.Thread(target=watch, name="leak-watch")
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def wait_until_gone(self, seconds: float = _GONE_SECONDS) -> None:
        """Fails with a list of those that live on."""
        deadline = time.monotonic() + seconds
        while left := self.processes():
            if time.monotonic() > deadline:
                raise AssertionError("processes are left:\n" + "\n".join(map(str, left)))
            time.sleep(0.1)

    def check_nothing_left(self, seconds: float = _GONE_SECONDS) -> None:
        """No process, no port, nothing in a temporary directory."""
        self.wait_until_gone(seconds)
        pids = {identity.pid for identity in self.seen}
        left = [
            f"{address} is listened on by {pid}"
            for address, pid in _listening()
            if address in self.ports and pid in {None, *pids}
        ]
        left += [str(path) for path in self.temporary.iterdir() if not _is_probe(path)]
        left += sorted(self.strays)
        assert not left, "left behind:\n" + "\n".join(left)

    def kill(self) -> None:
        """For a test that has failed: end what it has started."""
        for seen in self.processes():
            if identify(seen.identity.pid) == seen.identity:
                try:
                    os.kill(seen.identity.pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue

    def _look_at(self, entry: Path) -> Seen | None:
        pid = int(entry.name)
        if pid == os.getpid():
            return None
        try:
            environment = (entry / "environ").read_bytes()
            command = (entry / "cmdline").read_bytes()
        except OSError:  # it has ended, or is not ours to look at
            return None
        if not command:  # a zombie, or a kernel thread
            return None
        if f"{VARIABLE}={self.marker}".encode() not in environment.split(b"\0") and os.fsencode(self.directory) not in (
            command
        ):
            return None
        identity = identify(pid)
        if identity is None:
            return None
        return Seen(identity, tuple(command.rstrip(b"\0").decode(errors="replace").split("\0")))

    def _look_at_files(self, seen: Seen) -> None:
        """Native libraries that a JVM unpacks and its performance counters: in the run's own directories or nowhere."""
        system = Path(tempfile.gettempdir())
        for counters in system.glob(f"hsperfdata_*/{seen.identity.pid}"):
            if "java" in seen.command[0]:
                self.strays.add(str(counters))
        try:
            maps = Path(f"/proc/{seen.identity.pid}/maps").read_text()
        except OSError:
            return
        # A checkout may itself lie in a temporary directory: what is installed there is no stray.
        expected = (f"{self.directory}/", f"{sys.prefix}/", f"{_CHECKOUT}/")
        for line in maps.splitlines():
            path = line.split(maxsplit=5)[-1]
            if path.startswith(f"{system}/") and not path.startswith(expected):
                self.strays.add(path)


def _is_probe(path: Path) -> bool:
    """True for what Python's ``tempfile`` writes to try a directory: a process that is killed then leaves it behind."""
    return (
        re.fullmatch("[a-z0-9_]{8}", path.name) is not None and path.is_file() and path.read_bytes() in {b"", b"blat"}
    )


def _listening() -> list[tuple[str, int | None]]:
    """Addresses ("ip:port") and the processes that listen there, where they can be known."""
    return [
        (":".join(map(str, connection.laddr)), connection.pid)
        for connection in psutil.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
