"""The units that ``emberkeep system install`` writes, under a real systemd."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.commands import SMALL
from tests.integration.conditions import until
from tests.integration.services.machine import Machine, why_not
from tests.integration.services.services import CONFIG, JOB_MANAGER, STATE, TASK_MANAGER, USER, Services

pytestmark = [pytest.mark.integration, pytest.mark.long]

# Counts rows again and again with the same executor, and prints how often, until a file is there.
SCRIPT = """
import os, sys, time
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
places = spark.sparkContext.parallelize(range(4), 2)
number = 0
while not os.path.exists(sys.argv[1]):
    workers = places.map(lambda _: os.getppid()).distinct().count()
    number += 1
    print("round", number, "driver", os.getpid(), "of", os.getuid(), "workers", workers, flush=True)
    time.sleep(0.3)
"""
_reason = functools.cache(why_not)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    if reason := _reason():
        pytest.skip(reason)
    with contextlib.closing(Machine(tmp_path)) as machine:
        yield Services(machine)


class Rounds:
    """A job that runs the script."""

    def __init__(self, services: Services) -> None:
        self._services = services
        script = services.machine.path(f"{STATE}/rounds.py")
        script.write_text(SCRIPT)
        script.chmod(0o644)
        self._gate = f"{STATE}/gate"
        words = ("submit", "-q", *SMALL, "--num-executors", "1", f"{STATE}/rounds.py", self._gate)
        self.job_id = services.done(*words).strip()

    def go_on(self) -> None:
        """Wait until a round is done that has not begun yet."""
        before = self._last()
        until(lambda: self._last() >= before + 2, lambda: f"{self._out()}\n{self._services.story()}")

    def end(self) -> int:
        """Return the id of the driver's user. Fails unless one driver has done all rounds."""
        self._services.machine.done("touch", self._gate)
        info = functools.partial(self._services.done, "info", self.job_id)
        until(lambda: "FINISHED" in info(), info)
        ((_, user),) = set(re.findall(r"driver (\d+) of (\d+)", self._out()))
        return int(user)

    def _out(self) -> str:
        return self._services.command("logs", self.job_id).out

    def _last(self) -> int:
        return max((int(number) for number in re.findall(r"^round (\d+)", self._out(), re.MULTILINE)), default=0)


def test_jobs_survive_what_is_done_to_the_services(services: Services) -> None:
    services.start()
    rounds = Rounds(services)
    rounds.go_on()

    before = services.main_pid(TASK_MANAGER)
    services.machine.done("systemctl", "restart", TASK_MANAGER)
    rounds.go_on()
    until(lambda: services.registered() == 1, services.story)
    assert services.main_pid(TASK_MANAGER) != before

    # No service of their user is left for a moment, but what the job's processes share stays.
    services.machine.done("touch", "/dev/shm/segment", user=USER)
    services.machine.done("systemctl", "stop", TASK_MANAGER, JOB_MANAGER)
    assert services.machine.path("/dev/shm/segment").exists()
    services.start()
    rounds.go_on()

    for unit in (JOB_MANAGER, TASK_MANAGER):
        before = services.main_pid(unit)
        services.machine.done("systemctl", "kill", "--kill-whom=main", "--signal=KILL", unit)
        until(lambda unit=unit, before=before: services.main_pid(unit) not in (0, before), services.story)  # type: ignore[misc]
        until(lambda: services.registered() == 1, services.story)
        rounds.go_on()
    rounds.end()

    # One that was ended permanently is not started again.
    services.done("taskmanager", "stop", "tm-127.0.0.1")
    until(lambda: services.has_ended(TASK_MANAGER), services.story)
    shown = services.machine.shown(TASK_MANAGER, "ActiveState", "Result", "ExecMainStatus")
    assert shown == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}


def test_a_daemon_with_a_wrong_setting_is_not_started_again(services: Services) -> None:
    with services.machine.path(CONFIG).open("a") as config:
        config.write("rest.port: 'many'\n")
    services.machine.run("systemctl", "start", JOB_MANAGER)
    until(lambda: services.machine.shown(JOB_MANAGER, "Result")["Result"] == "exit-code", services.story)
    shown = services.machine.shown(JOB_MANAGER, "ActiveState", "ExecMainStatus", "NRestarts")
    assert shown == {"ActiveState": "failed", "ExecMainStatus": "2", "NRestarts": "0"}


def test_services_of_root_start_jobs_as_another_user(services: Services) -> None:
    """With the drop-in that the page about services names."""
    machine = services.machine
    services.run_as_root("jobs")
    services.start()
    rounds = Rounds(services)
    rounds.go_on()
    machine.done("systemctl", "restart", TASK_MANAGER)
    rounds.go_on()
    assert rounds.end() == int(machine.done("id", "-u", "jobs"))
