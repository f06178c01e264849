"""What local state saves after a node's restart, and what it costs while all goes well.

Recovery: a job's state of some hundred MB lies in a durable store that is 100 MB/s and 20 ms per request away. Gateway
and JVM die; the first micro-batch of the next JVM reads all state, from the node's copies in one case, in the other
from the durable store, the copies being lost. That micro-batch is small, and was planned before the end. Nothing is in
the page cache. One JVM on this machine stands for the job; its start and the placement of its tasks are not in these
times.

Cost: the same query in the same JVM takes turns on a checkpoint at the gateway (near store) and one with plain file://.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.commands import BIN, JOBS, Run, end, run, temporary_directory
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say
from bench.state.local_server import JOB
from emberkeep.spark.jvm.state_gateway_conf import (
    CREDENTIAL_VARIABLE,
    GATEWAY_VARIABLE,
    TRUST_VARIABLE,
    HadoopSite,
    gateway_settings,
    process_environment,
)

_PARTITIONS = 8
_BUILD_BATCHES = 5
_FEW_ROWS = 1000
_TIMEOUT_SECONDS = 1800.0
_FASTER = Goal(at_least=3.0)
_COST = Goal(at_most=1.03)


def measure(plan: Plan) -> list[Figure]:
    """Recovery with 500 MB of state."""
    return _recovery(plan.size(500, 20), plan)


def measure_large(plan: Plan) -> list[Figure]:
    """Recovery with 2 GB of state."""
    return _recovery(plan.size(2000, 40), plan)


def _recovery(megabytes: int, plan: Plan) -> list[Figure]:
    """Seconds, and ratios pair by pair."""
    first: dict[bool, list[float]] = {True: [], False: []}  # by whether there are copies
    loaded: dict[bool, list[float]] = {True: [], False: []}
    started: dict[bool, list[float]] = {True: [], False: []}
    with temporary_directory() as directory:
        _make_state(directory, megabytes)
        for repetition in range(plan.repetitions):
            for has_copies in (True, False) if repetition % 2 == 0 else (False, True):
                say(f"local state: {megabytes} MB, {repetition + 1} of {plan.repetitions}, copies: {has_copies}")
                _restart_node(directory, has_copies)
                with _gateway(directory, "far") as environment:
                    done = _job(directory, environment, _FEW_ROWS, 1, 1, [_gateway_uri("q")])
                first[has_copies] += [one.seconds for one in _turns(done, "FIRST")]
                loaded[has_copies] += [one.seconds for one in _turns(done, "LOADED")]
                started[has_copies] += [one.seconds for one in _turns(done, "STARTED")]
    size = f"{megabytes} MB of state"
    figures = []
    named = (
        ("query started, until its first micro-batch is committed", started),
        ("first micro-batch", first),
        ("its tasks read state, together", loaded),
    )
    for name, found in named:
        figures += [
            Figure(f"{size}: {name}, from copies", "s", tuple(found[True])),
            Figure(f"{size}: {name}, from the durable store", "s", tuple(found[False])),
            Figure(f"{size}: {name}, durable store / copies", "×", ratios(found[False], found[True]), _FASTER),
        ]
    return figures


def _make_state(directory: Path, megabytes: int) -> None:
    """State, and what lies on the disks when the node dies: a small micro-batch is planned, and not done."""
    with _gateway(directory, "near") as environment:
        say(f"local state: {megabytes} MB of state are made")
        _job(directory, environment, megabytes * 1000 // _BUILD_BATCHES, _BUILD_BATCHES, 1, [_gateway_uri("q")])
        _job(directory, environment, _FEW_ROWS, 1, 1, [_gateway_uri("q")])
    for path in (_copies(directory), _durable(directory)):
        shutil.copytree(path, directory / "kept" / path.name, copy_function=os.link)


def _restart_node(directory: Path, has_copies: bool) -> None:
    """As it was when the node died. Files are the same ones, by a link: a durable file's generation has its inode."""
    for path, is_kept in ((_copies(directory), has_copies), (_durable(directory), True)):
        shutil.rmtree(path, ignore_errors=True)
        if is_kept:
            shutil.copytree(directory / "kept" / path.name, path, copy_function=os.link)
            _forget_cached(path)


def _copies(directory: Path) -> Path:
    return directory / "tm" / "state"


def _durable(directory: Path) -> Path:
    return directory / "storage"


def measure_cost(plan: Plan) -> list[Figure]:
    """A turn's first micro-batch, which reads the state, does not count, nor does the first turn, which warms up."""
    turns = plan.size(2 * plan.repetitions + 1, 2)
    with temporary_directory() as directory, _gateway(directory, "near") as environment:
        say("local state: micro-batches through the gateway and without it")
        locations = [_gateway_uri("q"), (directory / "plain").as_uri()]
        done = _job(directory, environment, plan.size(20_000, 1000), plan.size(8, 3), turns, locations)
    times = _turns(done, "BATCH")
    ours, plain = (
        [
            statistics.median(one.seconds for one in times if (one.turn, one.checkpoint) == (turn, checkpoint))
            for turn in range(1, turns)
        ]
        for checkpoint in (0, 1)
    )
    return [
        Figure("micro-batch through the gateway", "s", tuple(ours)),
        Figure("micro-batch with file://", "s", tuple(plain)),
        Figure("micro-batch, gateway / file://", "×", ratios(ours, plain), _COST),
    ]


@dataclass(frozen=True)
class _Turn:
    """One time of a query's running."""

    turn: int
    checkpoint: int
    seconds: float


def _gateway_uri(query: str) -> str:
    return f"swebhdfs://localhost/{JOB}/own/{query}"


def _turns(done: Run, word: str) -> list[_Turn]:
    found = re.findall(rf"^{word} (\d+) (\d+) ([0-9.]+)$", done.output, re.MULTILINE)
    return [_Turn(int(turn), int(checkpoint), float(seconds)) for turn, checkpoint, seconds in found]


def _job(
    directory: Path, environment: dict[str, str], rows: int, batches: int, turns: int, checkpoints: list[str]
) -> Run:
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(directory / "scratch"),
        "spark.sql.shuffle.partitions": str(_PARTITIONS),
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        **gateway_settings({}, HadoopSite(), encrypts=True),
    }
    options = [text for key, value in settings.items() for text in ("--conf", f"{key}={value}")]
    java = ["--driver-java-options", f"-Djava.io.tmpdir={directory}"]
    arguments = [str(rows), str(batches), str(turns), *checkpoints]
    command = [str(BIN / "spark-submit"), *options, *java, str(JOBS / "stateful.py"), *arguments]
    return run(command, directory, environment, _TIMEOUT_SECONDS)


@contextmanager
def _gateway(directory: Path, distance: str) -> Iterator[dict[str, str]]:
    """Killed on leaving; yields the environment of a process that uses it."""
    server = subprocess.Popen(
        [sys.executable, "-m", "bench.state.local_server", str(directory), distance],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        address, credential = server.stdout.readline().split()
        trust = str(directory / "tm" / "state-trust.p12")
        yield process_environment({GATEWAY_VARIABLE: address, CREDENTIAL_VARIABLE: credential, TRUST_VARIABLE: trust})
    finally:
        end(server, signal.SIGKILL)
        if server.stdout is not None:
            server.stdout.close()


def _forget_cached(directory: Path) -> None:
    """After a restart of a node nothing is in its page cache."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
