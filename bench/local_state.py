"""What local state saves after a node's restart, and what it costs while all goes well.

Recovery: a job's state of some hundred MB lies in a durable store that is 100 MB/s and 20 ms per request away. Gateway
and JVM die; the first micro-batch of the next JVM reads all state, from the node's copies in one case, in the other
from the durable store, the copies being lost. The copies are not in the page cache. One JVM on this machine stands for
the job; its start and the placement of its tasks are not in these times.

Cost: the same query in the same JVM takes turns on a checkpoint at the gateway (near store) and one with plain file://.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.commands import BIN, JOBS, Run, end, run, temporary_directory
from bench.local_state_server import JOB
from bench.measure import Figure, Goal, ratios
from bench.plan import Plan, say
from emberkeep.spark.state_gateway_conf import (
    CREDENTIAL_VARIABLE,
    GATEWAY_VARIABLE,
    gateway_settings,
    process_environment,
)

_PARTITIONS = 8
_BUILD_BATCHES = 5
_TIMEOUT_SECONDS = 1800.0
_FASTER = Goal(at_least=3.0)
_COST = Goal(at_most=1.05)


def measure(plan: Plan) -> list[Figure]:
    """Seconds of micro-batches, and ratios pair by pair."""
    figures = [figure for megabytes in ((20,) if plan.quick else (500, 2000)) for figure in _recovery(megabytes, plan)]
    return [*figures, *_cost(plan)]


def _recovery(megabytes: int, plan: Plan) -> list[Figure]:
    local: list[float] = []
    remote: list[float] = []
    with temporary_directory() as directory:
        with _gateway(directory, "near") as environment:
            say(f"local state: {megabytes} MB of state are made")
            _job(directory, environment, megabytes * 1000 // _BUILD_BATCHES, _BUILD_BATCHES, 1, [_gateway_uri("q")])
        copies = directory / "tm" / "state"
        kept = directory / "kept"
        shutil.copytree(copies, kept)
        for repetition in range(plan.repetitions):
            for samples, has_copies in ((local, True), (remote, False)):
                say(f"local state: {megabytes} MB, {repetition + 1} of {plan.repetitions}, copies: {has_copies}")
                shutil.rmtree(copies)
                if has_copies:
                    shutil.copytree(kept, copies)
                _forget_cached(copies if has_copies else kept)
                with _gateway(directory, "far") as environment:
                    done = _job(directory, environment, 1000, 1, 1, [_gateway_uri("q")])
                samples += [seconds for _, seconds in _numbers(done, "FIRST")]
    size = f"{megabytes} MB of state"
    return [
        Figure(f"{size}: first micro-batch, from copies", "s", tuple(local)),
        Figure(f"{size}: first micro-batch, from the durable store", "s", tuple(remote)),
        Figure(f"{size}: durable store / copies", "×", ratios(remote, local), _FASTER),
    ]


def _cost(plan: Plan) -> list[Figure]:
    """A turn's first micro-batch, which reads the state, does not count."""
    with temporary_directory() as directory, _gateway(directory, "near") as environment:
        say("local state: micro-batches through the gateway and without it")
        locations = [_gateway_uri("q"), (directory / "plain").as_uri()]
        done = _job(directory, environment, plan.size(20_000, 1000), plan.size(8, 3), plan.size(4, 2), locations)
    times = _numbers(done, "BATCH")
    ours, plain = ([seconds for number, seconds in times if number == place] for place in (0, 1))
    return [
        Figure("micro-batch through the gateway", "s", tuple(ours)),
        Figure("micro-batch with file://", "s", tuple(plain)),
        Figure("micro-batch, gateway / file://", "×", ratios(ours, plain), _COST),
    ]


def _gateway_uri(query: str) -> str:
    return f"webhdfs://localhost/{JOB}/own/{query}"


def _numbers(done: Run, word: str) -> list[tuple[int, float]]:
    """Number of the checkpoint, seconds."""
    found = re.findall(rf"^{word} (\d+) ([0-9.]+)$", done.output, re.MULTILINE)
    return [(int(number), float(seconds)) for number, seconds in found]


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
        **gateway_settings({}, ""),
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
        [sys.executable, "-m", "bench.local_state_server", str(directory), distance],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert server.stdout is not None
        address, credential = server.stdout.readline().split()
        yield process_environment({GATEWAY_VARIABLE: address, CREDENTIAL_VARIABLE: credential})
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
