"""Modules that others plant in a directory that they can write never run in a job's processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Shell

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.req("SEC-4")]

MODULE = "WORD = 'beside the script'\n"
SCRIPT = """
import beside
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

def word(number):
    import beside
    return beside.WORD if number else ""

print(beside.WORD, spark.sparkContext.parallelize([1], 1).map(word).collect())
"""
LONELY = """
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = SparkSession.builder.getOrCreate()
print(spark.range(2).select(udf(lambda number: number + 1, "long")("id").alias("n")).toPandas().n.tolist())
"""


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path, class_archive.parent))
    try:
        cluster.up(*QUICK)
        yield cluster
    finally:
        cluster.close()


def plant(directory: Path, mark: Path) -> None:
    """Plant a module for every name that Python or an installed package may import, in a directory for all to write."""
    directory.chmod(0o777)
    for name in {*sys.stdlib_module_names, *packages_distributions()} - {"__main__"}:
        if name.isidentifier():
            planted = directory / f"{name}.py"
            planted.write_text(f"open({str(mark)!r}, 'a').write('{name}\\n')\nraise ImportError('planted {name}')\n")


def test_nothing_of_a_hostile_working_directory_runs(cluster: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    plant(cluster.shell.work, mark)
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    (own / "app.py").write_text(SCRIPT)
    (own / "beside.py").write_text(MODULE)
    ended = cluster.shell.run("run", *SMALL, str(own / "app.py"))
    assert not mark.exists(), f"{mark.read_text()}\n{ended}"
    assert (ended.code, ended.out) == (0, "beside the script ['beside the script']\n"), ended
    assert f"{cluster.shell.work} is not used for imports" in ended.err, ended


def test_a_script_in_a_hostile_directory_runs_without_the_modules_beside_it(cluster: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    plant(cluster.shell.work, mark)
    cluster.shell.write("app.py", LONELY)
    ended = cluster.shell.run("run", *SMALL, "app.py")
    assert not mark.exists(), f"{mark.read_text()}\n{ended}"
    assert (ended.code, ended.out) == (0, "[1, 2]\n"), ended
    assert f"{cluster.shell.work} is not used for imports" in ended.err, ended
