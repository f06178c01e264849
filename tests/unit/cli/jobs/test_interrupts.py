"""Signals that a command counts, and the one that it leaves ignored."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.cli.application import main
from emberkeep.cli.interrupts import Interrupts
from emberkeep.client.clusters.local_cluster import LocalCluster
from tests.unit.client.fake_job_manager import FakeJobManager, job_info

Output = pytest.CaptureFixture[str]
JOB = "a1" + "0" * 30
DEADLINE = 20.0


@pytest.fixture
def nohup() -> Iterator[None]:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


async def counted(number: signal.Signals) -> int:
    """Return how many of these signals, and of one SIGTERM after them, are counted."""
    interrupts = Interrupts()
    with interrupts.catching():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(DEADLINE):
            await interrupts.wait_for(1)
            await asyncio.sleep(0)
    return interrupts.count


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_signals_are_counted(number: signal.Signals) -> None:
    assert await counted(number) == 2


@pytest.mark.usefixtures("nohup")
async def test_the_end_of_the_terminal_does_not_count_under_nohup() -> None:
    assert await counted(signal.SIGHUP) == 1
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.usefixtures("nohup")
def test_a_command_beside_a_spark_connect_server_survives_its_terminal_under_nohup(
    fake: FakeJobManager, capfd: Output
) -> None:
    fake.jobs[JOB] = job_info(JOB, name="connect")
    script = "import os; os.kill(os.getppid(), 1); os.kill(os.getpid(), 1); print('still here')"
    assert main(["connect", "exec", sys.executable, "-c", script]) == 0
    assert capfd.readouterr().out == "still here\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_start_of_a_cluster_that_is_ended_takes_back_what_it_has_started(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_back = []

    async def up(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(DEADLINE)
        except asyncio.CancelledError:
            taken_back.append(number)
            raise

    monkeypatch.setattr(LocalCluster, "up", up)
    assert main(["cluster", "up", "--state-dir", str(tmp_path)]) == 130
    assert taken_back == [number]
    assert signal.getsignal(number) is signal.SIG_DFL
