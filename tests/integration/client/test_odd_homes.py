"""Homes as some people have them: names that shells, URLs and Java read their own way, and one that is read-only."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import site
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Shell, watched
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long]

ODD = "hö me 'q' \"d\" $x #&;%41"
NAME = f"{ODD} 🔥"  # of a job. RocksDB opens no directory with such a character: `emberkeep doctor` says so
SCRIPT_NAME = "äpp 'q' 🔥.py"

# Everything that comes with it has such a name, too. Its function runs on executors.
FILES = """
import sys
from pathlib import Path
from pyspark import SparkFiles
from pyspark.sql import SparkSession
import mödul

spark = SparkSession.builder.getOrCreate()
print(spark.sparkContext.appName)
print(spark.sparkContext.parallelize(range(3), 1).map(mödul.doubled).sum(), sys.argv[1:])
print(Path(SparkFiles.get("dätei 'x' 🔥.txt")).read_text())
print(Path(SparkFiles.get("ärchiv")).joinpath("ïnner.txt").read_text())
"""


@pytest.fixture
def odd_shell(tmp_path: Path, class_archive: Path) -> Iterator[Shell]:
    """The shell of a user whose home, virtual environment, state and folders have such names."""
    directory = tmp_path / ODD
    program = environment_in(directory / "vénv 🔥")
    with watched(Shell(directory, class_archive.parent, program)) as shell:
        yield shell


def environment_in(directory: Path) -> Path:
    """Make a virtual environment with all that the tests' own has. Return its ``emberkeep``."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    known = [path for path in site.getsitepackages() if path != str(packages)]
    (packages / "base.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in known))
    program = directory / "bin" / "emberkeep"
    # A path with spaces fits into no line of the kernel's: pip writes its scripts for such an environment like this.
    program.write_text(f'#!/bin/sh\nexec "$(dirname "$0")/python" {shlex.quote(str(command()))} "$@"\n')
    program.chmod(0o755)
    return program


def command() -> Path:
    return Path(sys.executable).with_name("emberkeep")


def test_a_stream_in_a_home_with_an_odd_name_survives_its_driver_and_continues_from_a_savepoint(
    odd_shell: Shell,
) -> None:
    cluster = Cluster(odd_shell)
    cluster.up(*QUICK)
    try:
        stream = Stream(odd_shell.work / "öut 'p' 🔥 #1")
        script = odd_shell.write(SCRIPT_NAME, SCRIPT)
        job = cluster.submit(script, "--name", NAME, arguments=(str(stream.place),))
        cluster.wait_for(job, lambda _: stream.batches() >= 2, "batches")
        os.killpg(cluster.wait_for_driver(job), signal.SIGKILL)
        seen = stream.batches()
        cluster.wait_for(job, lambda _: stream.batches() >= seen + 2, "batches of the next attempt")
        savepoints = odd_shell.directory / "säve 'points' 🔥"
        examined = odd_shell.run("doctor", "--state-dir", str(odd_shell.directory / "🔥")).out
        assert "RocksDB state stores cannot be opened in" in examined, examined
        odd_shell.done("stop", job, "--savepoint-path", str(savepoints))
        (savepoint,) = savepoints.glob("savepoint-*")
        assert odd_shell.done("savepoint", "verify", str(savepoint)).code == 0
        again = cluster.submit(script, "--from-savepoint", str(savepoint), arguments=(str(stream.place),))
        seen = stream.batches()
        cluster.wait_for(again, lambda _: stream.batches() >= seen + 2, "batches after the savepoint")
        stream.finish()
        cluster.wait_for_end(again)
        stream.check_rows()
        assert cluster.job(job).name == NAME
        assert cluster.job(job).state is JobStatus.FINISHED
    finally:
        cluster.close()


def test_a_run_takes_files_modules_and_archives_with_odd_names_to_executors(odd_shell: Shell) -> None:
    odd_shell.write(SCRIPT_NAME, FILES)
    odd_shell.write("lïb 'y' 🔥/mödul.py", "def doubled(x):\n    return 2 * x\n")
    odd_shell.write("dätei 'x' 🔥.txt", "ü")
    with zipfile.ZipFile(odd_shell.work / "ärch ïve 🔥.zip", "w") as archive:
        archive.writestr("ïnner.txt", "innen")
    ended = odd_shell.run(
        *("run", *SMALL, "--num-executors", "1", "--name", NAME),
        *("--py-files", "lïb 'y' 🔥/mödul.py", "--files", "dätei 'x' 🔥.txt", "--archives", "ärch ïve 🔥.zip#ärchiv"),
        *(SCRIPT_NAME, "ärg 🔥", 'q"'),
    )
    assert ended.code == 0, ended
    assert ended.out.splitlines() == [NAME, "6 ['ärg 🔥', 'q\"']", "ü", "innen"]


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs util-linux")
def test_a_run_needs_no_home_that_can_be_written_and_a_cluster_says_what_to_do(shell: Shell) -> None:
    shell.write(
        "app.py", "from pyspark.sql import SparkSession\nprint(SparkSession.builder.getOrCreate().range(5).count())\n"
    )
    elsewhere = shell.directory / "elsewhere"
    ran = with_home_that_is_read_only(shell, "run", *SMALL, "--num-executors", "1", "app.py")
    assert (ran.returncode, ran.stdout) == (0, "5\n"), ran
    refused = with_home_that_is_read_only(shell, "cluster", "up")
    assert refused.returncode == 1, refused
    assert "cannot use the state directory" in refused.stderr
    assert "Read-only file system" in refused.stderr
    assert "--state-dir" in refused.stderr
    words = ("--state-dir", str(elsewhere))
    try:
        started = with_home_that_is_read_only(shell, "cluster", "up", *words, *QUICK)
        assert started.returncode == 0, started
        ran = with_home_that_is_read_only(shell, "run", *words, *SMALL, "--num-executors", "1", "app.py")
        assert (ran.returncode, ran.stdout) == (0, "5\n"), ran
    finally:
        ended = with_home_that_is_read_only(shell, "cluster", "down", *words)
    assert ended.returncode == 0, ended


def with_home_that_is_read_only(shell: Shell, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command that sees an empty, read-only home, as service accounts have it."""
    home = shell.environment["HOME"]
    script = f"mount -t tmpfs -o ro none {shlex.quote(home)} && exec {shlex.join([str(shell.program), *words])}"
    namespace = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), "sh", "-c", script]
    environment = {name: value for name, value in shell.environment.items() if not name.startswith("XDG_")}
    return subprocess.run(
        namespace, cwd=shell.work, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
