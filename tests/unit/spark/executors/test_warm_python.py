"""Warm Python: a fork of it becomes the daemon of an executor's Python workers, or that process starts cold."""

from __future__ import annotations

import contextlib
import inspect
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark
import pytest

from emberkeep.base.processes.priority import raise_to_normal
from emberkeep.spark.errors import StandbyFailed
from emberkeep.spark.executors import warm_python
from emberkeep.spark.executors.python_daemon import MODULE, WARM_PYTHON
from emberkeep.spark.executors.warm_python import SOCKET
from emberkeep.spark.standby.warming import start_python
from tests.integration.conditions import until

ENVIRON = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
AS_SPARK = {**ENVIRON, "PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES"}
ARCHIVE = str(Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip")


@dataclass(frozen=True)
class Warm:
    """Warm Python in its directory. ``jvm``: the process that stands for the JVM."""

    directory: Path
    jvm: subprocess.Popen[bytes]
    process: psutil.Process


@contextlib.contextmanager
def warm_in(directory: Path) -> Iterator[Warm]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as jvm:
        process = psutil.Process(start_python(jvm.pid, directory, ENVIRON))
        raise_to_normal([process.pid])
        yield Warm(directory, jvm, process)
        jvm.kill()
    process.wait(60)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """Warm Python that all tests share which leave it as it is."""
    with warm_in(tmp_path_factory.mktemp("standby")) as warm:
        yield warm


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    with warm_in(tmp_path_factory.mktemp("standby")) as warm:
        yield warm


def daemon(tmp_path: Path, warm: Warm, changed: Mapping[str, str] = {}) -> subprocess.Popen[bytes]:
    """Start the daemon as Spark does, with the socket of the standby."""
    return subprocess.Popen(
        [sys.executable, "-m", MODULE, "pyspark.worker"],
        env={**AS_SPARK, WARM_PYTHON: str(warm.directory / SOCKET), **changed},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def port_of(process: subprocess.Popen[bytes]) -> int:
    """Return the port that the daemon has told."""
    assert process.stdout is not None
    return int.from_bytes(process.stdout.read(4), "big")


def listener(port: int) -> psutil.Process:
    """Return the process that listens on a port."""
    found = [each.pid for each in psutil.net_connections("tcp") if each.laddr and each.laddr.port == port and each.pid]
    return psutil.Process(found[0])


def test_a_fork_becomes_the_daemon(tmp_path: Path, warm: Warm) -> None:
    process = daemon(tmp_path, warm, {"PYTHONPATH": ARCHIVE, "OF_THE_JOB": "yes"})
    fork = listener(port_of(process))
    assert fork.ppid() == warm.process.pid
    assert fork.cwd() == str(tmp_path)
    assert os.getpgid(fork.pid) == fork.pid
    assert process.communicate(b"", timeout=60) == (b"", b"")  # the end of its input ends the daemon
    assert process.returncode == 0
    assert not fork.is_running()


def test_each_daemon_is_a_fork_of_its_own(tmp_path: Path, warm: Warm) -> None:
    first, second = daemon(tmp_path, warm), daemon(tmp_path, warm, {"OF_THE_JOB": "other"})
    forks = {listener(port_of(process)) for process in (first, second)}
    assert {fork.ppid() for fork in forks} == {warm.process.pid}
    assert len(forks) == 2
    for process in (first, second):
        process.communicate(b"", timeout=60)


def test_sigterm_ends_the_daemon(tmp_path: Path, warm: Warm) -> None:
    process = daemon(tmp_path, warm)
    fork = listener(port_of(process))
    process.terminate()
    process.communicate(timeout=60)
    until(lambda: not fork.is_running(), "the fork ends")
    assert warm.process.is_running()


def test_the_warm_python_ends_with_the_jvm(own: Warm) -> None:
    own.jvm.kill()
    own.process.wait(60)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"PYTHONHASHSEED": "1"}, "other values of PYTHONHASHSEED"),
        ({"LD_PRELOAD": ""}, "other values of LD_PRELOAD"),
        ({"PYTHONOPTIMIZE": "1"}, "other values of PYTHONOPTIMIZE"),
    ],
)
def test_what_an_interpreter_reads_at_its_start_must_be_the_same(
    tmp_path: Path, warm: Warm, changed: Mapping[str, str], reason: str
) -> None:
    process = daemon(tmp_path, warm, changed)
    assert listener(port_of(process)).pid == process.pid
    _, errors = process.communicate(b"", timeout=60)
    assert reason in errors.decode()
    assert warm.process.is_running()


def test_modules_of_the_job_come_first(tmp_path: Path, warm: Warm) -> None:
    folder = tmp_path / "of_the_job"
    folder.mkdir()
    (folder / "cloudpickle.py").touch()  # is not imported by this name
    (folder / "queue.py").write_text(inspect.getsource(queue))
    process = daemon(tmp_path, warm, {"PYTHONPATH": str(folder)})
    assert listener(port_of(process)).pid == process.pid
    _, errors = process.communicate(b"", timeout=60)
    assert "another module queue on their path" in errors.decode()


def test_a_frozen_warm_python_costs_a_cold_start(tmp_path: Path, own: Warm) -> None:
    own.process.suspend()
    process = daemon(tmp_path, own)
    port = port_of(process)
    own.process.resume()
    assert listener(port).pid == process.pid
    assert process.communicate(b"", timeout=60)[0] == b""  # the late fork has written nothing


def test_a_lost_warm_python_costs_a_cold_start(tmp_path: Path, own: Warm) -> None:
    own.process.send_signal(signal.SIGKILL)
    own.process.wait(60)
    process = daemon(tmp_path, own)
    assert listener(port_of(process)).pid == process.pid
    process.communicate(b"", timeout=60)


def test_imports_that_fail_say_why(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('broken')")
    with pytest.raises(StandbyFailed, match="broken"):
        start_python(os.getpid(), tmp_path, {**ENVIRON, "PYTHONPATH": str(tmp_path)})


def test_what_a_site_prints_when_python_starts_is_not_the_pid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_python, "MODULE", "said")
    environ = {**ENVIRON, "PYTHONPATH": str(tmp_path)}
    (tmp_path / "sitecustomize.py").write_text("print('welcome')")
    (tmp_path / "said.py").write_text("print(17)")
    assert start_python(os.getpid(), tmp_path, environ) == 17
    (tmp_path / "said.py").write_text("print(17)\nprint('good-bye')")
    with pytest.raises(StandbyFailed, match="good-bye"):
        start_python(os.getpid(), tmp_path, environ)
