"""A JVM does nothing while its driver cannot know if its attempt is the current one."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator

import psutil
import pytest

from emberkeep.daemons.driver.fencing.stop_watch import StopWatch
from emberkeep.jobmaster.lease import AttemptLease
from tests.integration.conditions import until

pytestmark = pytest.mark.req("HA-7")

FREEZE = 1.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def jvm() -> Iterator[psutil.Process]:
    """A process in place of the JVM."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield psutil.Process(process.pid)
        process.kill()


@pytest.mark.parametrize("ended_by", ["marks", "leader"])
def test_the_jvm_is_stopped_while_neither_a_leader_nor_the_marks_are_known(jvm: psutil.Process, ended_by: str) -> None:
    clock, asked = Clock(), list[str]()
    lease = AttemptLease(FREEZE, clock)
    for _ in range(3):
        clock.now += FREEZE / 2
        lease.look()
    assert lease.look()
    assert not lease.was_stopped()
    watch = StopWatch(lease, lambda: jvm.pid, lambda: asked.append("asked"))
    holding = threading.Thread(target=watch.hold, daemon=True)
    holding.start()
    until(lambda: jvm.status() == psutil.STATUS_STOPPED, "the JVM is stopped")
    until(lambda: asked, "the leader is asked")
    if ended_by == "marks":
        lease.marks_read(lease.begin_reading())
    else:
        lease.confirmed(lease.asking())
    until(lambda: jvm.status() != psutil.STATUS_STOPPED, "the JVM goes on")
    holding.join(60.0)
    assert not holding.is_alive()
