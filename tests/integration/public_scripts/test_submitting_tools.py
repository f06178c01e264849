"""Public tools that start spark-submit: with emberkeep-spark-submit in its place they bring the same result."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.integration.clusters import Cluster
from tests.integration.commands import Ended, Shell
from tests.integration.public_scripts.packaged import LIBRARIES, PYTHON

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(PYTHON is None, reason="`make public-scripts` brings the tools"),
]

_SECONDS = 300.0
Ways = tuple[tuple[Shell, Path], ...]


@pytest.fixture(scope="module")
def python() -> Path:
    assert PYTHON is not None
    return PYTHON


@pytest.fixture
def ways(cluster: Cluster, plain: Shell, python: Path) -> Ways:
    """A shell for each way, and the program that tools start there."""
    for shell in (plain, cluster.shell):
        if "SPARK_CONF_DIR" not in shell.environment:
            shell.use_small_jvms()
    return (plain, plain.program), (cluster.shell, python.with_name("emberkeep-spark-submit"))


def _environment(shell: Shell, **more: str) -> dict[str, str]:
    """The shell's, with a temporary directory in which tools may leave files."""
    temporary = shell.directory / "left-by-tools"
    temporary.mkdir(exist_ok=True)
    return shell.environment | {"TMPDIR": str(temporary), **more}


def _all_succeed(*ends: Ended) -> None:
    assert [ended.code for ended in ends] == [0] * len(ends), "\n".join(map(str, ends))


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="mrjob needs the module `pipes`, which Python 3.13 has not")
@pytest.mark.parametrize("job", ["mr_spark_wordcount", "mr_word_freq_count"])
def test_a_job_of_mrjob(ways: Ways, python: Path, job: str) -> None:
    """One of its examples that call Spark, and one with mappers and reducers, whose counters are accumulators."""
    running = [
        shell.start(
            *("-m", f"mrjob.examples.{job}", "-r", "spark", "--spark-master", "local[2]", "--python-bin", str(python)),
            *("--spark-submit-bin", str(program), "--spark-args", "--num-executors 1", "words.txt"),
            environment=_environment(shell),
            program=python,
        )
        for shell, program in ways
    ]
    alone, submitted = (each.wait(_SECONDS) for each in running)
    _all_succeed(alone, submitted)
    assert "fire" in alone.out
    assert sorted(submitted.out.splitlines()) == sorted(alone.out.splitlines())


def test_a_task_of_luigi(ways: Ways, python: Path) -> None:
    """Luigi pickles the task, and its own program for Spark runs it."""
    module = LIBRARIES / "luigi_count.py"
    running = []
    for shell, program in ways:
        settings = {"spark-submit": program, "master": "local[2]", "num-executors": 1, "py-files": module}
        lines = ("[spark]", *(f"{key}: {value}" for key, value in settings.items()))
        shell.write("luigi.cfg", "".join(f"{line}\n" for line in lines))
        words = ("--module", module.stem, "Count", "--local-scheduler", "--source", "words.txt", "--target", "counts")
        environment = _environment(shell, PYTHONPATH=str(module.parent))
        running.append(shell.start(*words, environment=environment, program=python.with_name("luigi")))
    _all_succeed(*(each.wait(_SECONDS) for each in running))
    alone, submitted = (_lines(shell.work / "counts") for shell, _ in ways)
    assert "('fire', 3)" in alone
    assert submitted == alone


def _lines(folder: Path) -> list[str]:
    return sorted(line for part in folder.glob("part-*") for line in part.read_text().splitlines())
