"""Drivers that cannot be started: their user reads why after the first attempt, and they are not started for ever."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Ended, Shell

pytestmark = [pytest.mark.integration, pytest.mark.req("SAFE-22")]

PLAIN = "print('ran')\n"
SOON = (
    *("-D", "job.driver.start-attempts=3", "-D", "restart-strategy.type=exponential-delay"),
    *("-D", "restart-strategy.exponential-delay.initial-backoff=100ms"),
)


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    """Its daemons and drivers also import from ``modules``, which is empty at first."""
    shell = Shell(tmp_path, class_archive.parent)
    modules = tmp_path / "modules"
    modules.mkdir()
    shell.environment["PYTHONPATH"] = str(modules)
    shell.write("plain.py", PLAIN)
    cluster = Cluster(shell)
    try:
        cluster.up(*QUICK)
        yield cluster
    finally:
        shutil.rmtree(modules)
        cluster.close()


def run(cluster: Cluster, *words: str) -> Ended:
    return cluster.shell.run("run", *SMALL, *SOON, *words)


def refused(ended: Ended, reason: str) -> None:
    """The reason is told after the first attempt, and as the job's end."""
    assert ended.code == 1, ended
    lines = ended.err.splitlines()
    told = [number for number, line in enumerate(lines) if "attempt 1 of the job failed on" in line and reason in line]
    second = [number for number, line in enumerate(lines) if "attempt 2 of the job starts" in line]
    assert told, ended
    assert second, ended
    assert told[0] < second[0], ended
    assert "FAILED: " in lines[-1], ended
    assert reason in lines[-1], ended
    assert "3 starts in a row failed for this reason, on the only node" in lines[-1], ended


def test_an_environment_whose_import_fails(cluster: Cluster) -> None:
    planted = cluster.shell.directory / "modules" / "structlog.py"
    planted.write_text("raise ImportError('the environment is broken')\n")
    # The command itself is another user's process, whose environment is sound.
    sound = {name: value for name, value in cluster.shell.environment.items() if name != "PYTHONPATH"}
    ended = cluster.shell.run("run", *SMALL, *SOON, "plain.py", environment=sound)
    refused(ended, "ImportError: the environment is broken")
    assert "driver.stderr" in ended.err, "where its log is"
    planted.unlink()
    (job,) = cluster.ask(lambda client: client.jobs())
    shown = cluster.shell.done("info", job.jid).out
    assert "ImportError: the environment is broken" in shown
    assert "raise ImportError" in shown, "the last lines of its log"
    assert cluster.shell.done("run", *SMALL, "plain.py").out == "ran\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "reason"),
    [
        # Imported once the JobManager has accepted the attempt.
        ("py4j", "ImportError: the environment is broken"),
        # Imported in the JobMaster's thread, before that.
        ("stringprep", "LookupError: unknown encoding: idna"),
    ],
)
def test_an_import_that_fails_after_the_drivers_start(cluster: Cluster, module: str, reason: str) -> None:
    planted = cluster.shell.directory / "modules" / f"{module}.py"
    planted.write_text("raise ImportError('the environment is broken')\n")
    sound = {name: value for name, value in cluster.shell.environment.items() if name != "PYTHONPATH"}
    ended = cluster.shell.run("run", *SMALL, *SOON, "plain.py", environment=sound)
    refused(ended, reason)
    assert "Traceback (most recent call last):" in ended.err, "the driver's standard error"


def test_an_archive_that_is_none(cluster: Cluster) -> None:
    (cluster.shell.work / "venv.zip").write_bytes(b"PK\3\4 but no more")
    refused(run(cluster, "--archives", "venv.zip#venv", "plain.py"), "cannot unpack venv.zip")


def test_a_python_in_an_archive_that_does_not_start(cluster: Cluster) -> None:
    with zipfile.ZipFile(cluster.shell.work / "venv.zip", "w") as archive:
        python = zipfile.ZipInfo("bin/python")
        python.external_attr = 0o755 << 16
        archive.writestr(python, "#!/bin/sh\necho it is for another machine >&2\nexit 3\n")
    words = ("--archives", "venv.zip#venv", "--conf", "spark.pyspark.python=venv/bin/python", "plain.py")
    refused(run(cluster, *words), "it is for another machine")


def test_a_module_in_the_clients_directory_does_not_take_the_place_of_ours(cluster: Cluster) -> None:
    cluster.shell.write("structlog.py", 'raise ImportError("not ours")\n')
    ended = run(cluster, "plain.py")
    assert (ended.code, ended.out) == (0, "ran\n"), ended
