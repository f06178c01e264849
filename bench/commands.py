"""Running commands as whole processes, and nothing of them left behind, however the measurement ends."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from emberkeep.base.configuration.options.task_managers import BUILD_CLASS_ARCHIVE, JOB_ENVIRONMENT
from emberkeep.base.configuration.sources import environment_variable
from emberkeep.daemons.taskmanager.job_environment import EVERYTHING

BIN = Path(sys.executable).parent
EMBERKEEP = str(BIN / "emberkeep")
SPARK_SUBMIT = str(BIN / "spark-submit")
JOBS = Path(__file__).parent / "jobs"

_TIMEOUT_SECONDS = 300
_END_SECONDS = 30  # a cancelled job may end in peace
MARK = "BENCH_MARK"  # in the environment of everything that a measurement starts


@dataclass(frozen=True)
class Run:
    """One finished command: when it was started (Unix seconds), how long it took, and what it printed."""

    started: float
    seconds: float
    output: str

    def numbers(self, word: str) -> list[float]:
        """The first number of each output line that begins with ``word``. Raises SystemExit when there is none."""
        found = [float(match) for match in re.findall(rf"^{word} ([0-9.]+)", self.output, re.MULTILINE)]
        if not found:
            raise SystemExit(f"the job printed no {word}:\n{self.output[-2000:]}")
        return found


def run(argv: Sequence[str], directory: Path, environ: Mapping[str, str], timeout: float = _TIMEOUT_SECONDS) -> Run:
    """Run a command to its end, and kill what it leaves. Raises SystemExit as ``execute`` does."""
    with marked(environ) as environment:
        return execute(argv, directory, environment, timeout)


def execute(
    argv: Sequence[str], directory: Path, environment: Mapping[str, str], timeout: float = _TIMEOUT_SECONDS
) -> Run:
    """Run a command to its end. Raises SystemExit with its last lines when it fails or takes longer than ``timeout``.

    It runs in a session of its own; when this process is interrupted it is told so, too, and waited for.
    """
    started, begin = time.time(), time.perf_counter()
    process = subprocess.Popen(
        argv,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{' '.join(argv)} did not end in {timeout:g} s") from None
    finally:
        if process.returncode is None:
            end(process, signal.SIGINT)
    seconds = time.perf_counter() - begin
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(argv)} ended with {process.returncode}:\n{errors[-2000:]}")
    return Run(started, seconds, output)


@contextmanager
def marked(environ: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """An environment for commands: this one's, ``environ`` over it, this Python for Spark's workers on every side.

    It carries a mark; on leaving, processes that carry it are killed.
    """
    mark = secrets.token_hex(8)
    inherited = {environment_variable(JOB_ENVIRONMENT.key): EVERYTHING}  # by drivers and executors, too
    undisturbed = {environment_variable(BUILD_CLASS_ARCHIVE.key): "false"}
    try:
        yield {**os.environ, "PYSPARK_PYTHON": sys.executable, **inherited, **undisturbed, **environ, MARK: mark}
    finally:
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == mark:
                    process.kill()


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> None:
    """Ask a process to end, and kill it when it does not."""
    process.send_signal(number)
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Removed on leaving."""
    path = Path(tempfile.mkdtemp(prefix="emberkeep-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
