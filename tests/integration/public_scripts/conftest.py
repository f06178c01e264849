"""A cluster for all scripts, and a shell whose spark-submit finds the same files as the cluster's jobs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clusters import Cluster
from tests.integration.commands import Shell
from tests.integration.public_scripts.resources import write_resources


@pytest.fixture(scope="module")
def python() -> Path:
    """The interpreter of the environment that has the scripts' packages, and Emberkeep."""
    return Path(sys.executable)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path, python: Path) -> Iterator[Cluster]:
    program = python.with_name("emberkeep")
    cluster = Cluster(Shell(tmp_path_factory.mktemp("cluster"), class_archive.parent, program))
    try:
        cluster.up("-D", "rest.port=0", "--slots", "2", "--memory", "6g")
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def plain(tmp_path: Path, class_archive: Path, python: Path, cluster: Cluster) -> Iterator[Shell]:
    """Runs spark-submit. Its directory and that of the cluster's jobs have the same files, and no others."""
    plain = Shell(tmp_path, class_archive.parent, Path(sys.executable).with_name("spark-submit"))
    temporary = plain.traces.temporary
    plain.environment |= {
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_DIRS": str(temporary),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary} -XX:-UsePerfData",
    }
    for left in cluster.shell.work.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    for place in (plain.work, cluster.shell.work):
        write_resources(place)
    try:
        yield plain
    finally:
        plain.traces.kill()
        cluster.cancel_all()
        plain.traces.wait_until_gone()
