"""The configuration of rsyslog in docs/production/logs.md: a real rsyslog sends what the files of a machine get."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId, TaskManagerId
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

_CHECKOUT = Path(__file__).resolve().parents[3]
_PAGE = _CHECKOUT / "docs" / "production" / "logs.md"
_UNPACKED = Path(sys.prefix) / "rsyslog"  # by tools/ensure-rsyslog.sh
_STACK_TRACE = '26/11/29 01:02:03 ERROR Foo: it\'s "bad"\njava.lang.IllegalStateException: é\n\tat a.b(C.java:1)'
_LATER = "26/11/29 01:02:04 INFO Foo: good"
_EVENTS = [f"{number:04}" for number in range(5000)]
_LAST = "last"

Line = dict[str, Any]


class Collector:
    """What listens at the address of the page once it is open. ``lines``: what it has got, decoded."""

    def __init__(self) -> None:
        self._server = socket.socket()
        self._server.bind(("127.0.0.1", 0))  # connections are refused, and nobody else gets the port
        self.port: int = self._server.getsockname()[1]
        self.lines: list[Line] = []
        self._connections: list[socket.socket] = []

    def open(self) -> None:
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:  # closed
                return
            self._connections.append(connection)
            threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            try:
                for line in lines:
                    self.lines.append(json.loads(line))
            except OSError:  # closed
                return

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it was never open
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):  # the other side has closed it
                connection.shutdown(socket.SHUT_RDWR)


def _program() -> tuple[str, dict[str, str], tuple[str, ...]]:
    """Return rsyslogd with the environment and the options that it needs. Skips the test if there is none."""
    installed = shutil.which("rsyslogd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if installed is not None:
        return installed, {}, ()
    if not (_UNPACKED / "usr" / "sbin" / "rsyslogd").exists():
        pytest.skip("there is no rsyslog: `make rsyslog`")
    (libraries,) = (_UNPACKED / "usr" / "lib").glob("*-linux-gnu")  # of this architecture
    environment = {"LD_LIBRARY_PATH": str(libraries)}
    return str(_UNPACKED / "usr" / "sbin" / "rsyslogd"), environment, ("-M", str(libraries / "rsyslog"))


def _documented() -> str:
    """The configuration on the page."""
    blocks = _PAGE.read_text().split("```text\n")[1:]
    (found,) = (block.partition("```")[0] for block in blocks if "imfile" in block)
    return found


class Machine:
    """rsyslog over the state directory of a machine. ``start`` first."""

    def __init__(self, directory: Path, port: int) -> None:
        self.layout = StateLayout(directory / "state", Configuration())
        self.daemon_log = self.layout.job_manager / "logs" / "jobmanager.log"
        self._directory = directory
        text = _documented()
        for documented, own in (
            ("/var/lib/emberkeep", str(self.layout.root)),
            ('target="logs.example" port="514"', f'target="127.0.0.1" port="{port}"'),
        ):
            assert documented in text
            text = text.replace(documented, own)
        self._configuration = directory / "emberkeep.conf"
        self._configuration.write_text(text)
        self._positions = directory / "positions"
        self._positions.mkdir()
        # As Debian's own file does it.
        main = f'global(workDirectory="{self._positions}")\ninclude(file="{directory}/emberkeep.conf")\n'
        (directory / "rsyslog.conf").write_text(main)
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, documented: str, own: str) -> None:
        text = self._configuration.read_text()
        assert documented in text
        self._configuration.write_text(text.replace(documented, own))

    def start(self) -> None:
        program, environment, options = _program()
        files = ("-f", str(self._directory / "rsyslog.conf"), "-i", str(self._directory / "pid"))
        words = [program, "-n", *files, *options]
        checked = subprocess.run(
            [*words, "-N1"], env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=60
        )
        assert checked.returncode == 0, checked.stderr
        with (self._directory / "said").open("ab") as said:
            self._process = subprocess.Popen(words, env={**os.environ, **environment}, stdout=said, stderr=said)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def write(self, path: Path, *lines: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def has_queued(self, event: str) -> bool:
        """True once a line of the daemon's log waits on disk."""
        return any(f'"{event}"'.encode() in file.read_bytes() for file in self._positions.glob("emberkeep-*.0*"))

    def story(self) -> str:
        return (self._directory / "said").read_text()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Not open yet."""
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture
def machine(tmp_path: Path, collector: Collector) -> Iterator[Machine]:
    machine = Machine(tmp_path, collector.port)
    try:
        yield machine
    finally:
        machine.stop()


def _entry(event: str) -> str:
    return json.dumps({"event": event, "level": "info", "job": "037a33"})


def _await_end(machine: Machine, collector: Collector) -> None:
    """Until the collector has a further line, before which it got all others of that file."""
    machine.write(machine.daemon_log, _entry(_LAST))
    until(lambda: _LAST in _values(collector, "event"), machine.story)


def _values(collector: Collector, field: str) -> list[str]:
    return sorted(line[field] for line in collector.lines if field in line)


def test_the_documented_configuration_ships_the_lines_of_daemons_and_jobs(
    machine: Machine, collector: Collector
) -> None:
    collector.open()
    agent = WorkingDirectory(machine.layout.working_directory(TaskManagerId("tm-1")))
    attempt = agent.attempt_logs(JobId("037a33"), 2)
    daemon = machine.daemon_log
    machine.write(daemon, _entry("before rsyslog"))
    machine.start()
    machine.write(agent.logs / "taskmanager.log", _entry("agent"))
    machine.write(machine.layout.audit / "audit.log", _entry("audit"))
    until(lambda: _values(collector, "event") == ["agent", "audit", "before rsyslog"], machine.story)

    # A job that starts later, and rotated logs.
    machine.write(attempt / "driver.log", _entry("driver"))
    machine.write(attempt / "driver.stderr", _STACK_TRACE, _LATER)
    machine.write(attempt / "executor-3.stdout", "x" * 20_000, "second")
    daemon.rename(daemon.with_name("jobmanager.log.1"))
    machine.write(daemon, _entry("rotated"))
    until(lambda: {"driver", "rotated"} < set(_values(collector, "event")), machine.story)
    until(lambda: len(_values(collector, "message")) >= 4, machine.story)
    machine.write(attempt / "executor-3.stdout", _LAST)
    until(lambda: _LAST in _values(collector, "message"), machine.story)
    _await_end(machine, collector)
    told = {(line["process"], line["stream"], line["message"]) for line in collector.lines if "message" in line}
    assert told == {
        ("driver", "stderr", _STACK_TRACE),
        ("driver", "stderr", _LATER),
        ("executor-3", "stdout", "x" * 20_000),
        ("executor-3", "stdout", "second"),
        ("executor-3", "stdout", _LAST),
    }
    assert {(line["job"], line["attempt"]) for line in collector.lines if "message" in line} == {("037a33", "2")}
    assert all(line["metadata"]["filename"].startswith(str(machine.layout.root)) for line in collector.lines)
    assert len(collector.lines) == 11, "each line once"


def test_what_is_written_while_rsyslog_is_away_is_sent_later(machine: Machine, collector: Collector) -> None:
    collector.open()
    machine.write(machine.daemon_log, _entry("first"))
    machine.start()
    until(lambda: _values(collector, "event") == ["first"], machine.story)
    machine.stop()
    machine.write(machine.daemon_log, _entry("second"))
    machine.start()
    until(lambda: "second" in _values(collector, "event"), machine.story)
    _await_end(machine, collector)
    assert _values(collector, "event") == ["first", _LAST, "second"]


def test_what_is_written_before_the_collector_is_there_is_sent_later(machine: Machine, collector: Collector) -> None:
    machine.write(machine.daemon_log, *map(_entry, _EVENTS))
    machine.start()
    until(lambda: "cannot connect" in machine.story(), machine.story)
    collector.open()
    _await_end(machine, collector)
    assert _values(collector, "event") == [*_EVENTS, _LAST]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_at_most_one_line_is_lost_if_rsyslog_ends_while_the_collector_is_away(
    machine: Machine, collector: Collector, how: signal.Signals
) -> None:
    machine.write(machine.daemon_log, *map(_entry, _EVENTS))
    machine.start()
    until(lambda: "cannot connect" in machine.story(), machine.story)
    until(lambda: machine.has_queued(_EVENTS[-1]), machine.story)
    machine.stop(how)
    machine.start()
    collector.open()
    _await_end(machine, collector)
    got = _values(collector, "event")
    if how is signal.SIGKILL:  # it does not know what it has read last
        assert set(got) == {*_EVENTS, _LAST}
    else:
        assert len(got) == len(set(got)), "each line once"
        assert len({*_EVENTS, _LAST} - set(got)) <= 1, "but the one that was being sent"


def test_what_the_queue_cannot_hold_waits_in_the_files(machine: Machine, collector: Collector) -> None:
    machine.configure('queue.size="1000000"', 'queue.size="3000"')
    machine.write(machine.daemon_log, *map(_entry, _EVENTS))
    machine.start()
    until(lambda: "cannot connect" in machine.story(), machine.story)
    time.sleep(5)  # longer than rsyslog waits by default before it discards a line
    assert machine.has_queued(_EVENTS[0])
    assert not machine.has_queued(_EVENTS[-1])
    collector.open()
    _await_end(machine, collector)
    assert _values(collector, "event") == [*_EVENTS, _LAST]
