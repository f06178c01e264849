"""Signals that a command counts, and the one that it leaves ignored."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from emberkeep.cli.application import main
from emberkeep.cli.interrupts import Interrupts
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
