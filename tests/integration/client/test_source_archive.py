"""A user who has only the source archive: pip builds and installs it, and a cluster of it runs a script."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep import __version__
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Shell
from tests.unit.tools.test_distribution import MAIN, PIP, ROOT, build, run, share_libraries

pytestmark = [pytest.mark.integration, pytest.mark.long]

SCRIPT = """
import emberkeep
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
print("imported from", emberkeep.__file__)
print("executors import from", *spark.sparkContext.range(1).map(lambda _: __import__("emberkeep").__file__).collect())
print("sum", spark.range(1_000_000).selectExpr("sum(id)").first()[0])
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A new environment, on a path of its own, into which pip has installed the archive."""
    environment = tmp_path / "another place"
    share_libraries(environment)
    archive = build(MAIN, ROOT, tmp_path / "dist").archive
    command = (environment / "bin" / "python", "-P", "-m", "pip", "install", "--no-build-isolation", *PIP, archive)
    run(*command, cwd=tmp_path)
    return environment


def test_a_cluster_that_was_installed_from_the_source_archive_runs_a_script(installed: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "user", tmp_path / "no-class-archives", installed / "bin" / "emberkeep")
    assert __version__ in shell.done("--version").out
    cluster = Cluster(shell)
    try:
        cluster.up("--slots", "1", "--memory", "3g", *QUICK)
        script = shell.write("count.py", SCRIPT)
        ended = shell.done("run", "-q", "--num-executors", "1", *SMALL, str(script))
        lines = ended.out.splitlines()
        assert "sum 499999500000" in lines, ended
        for told in ("imported from", "executors import from"):
            (place,) = (line.removeprefix(f"{told} ") for line in lines if line.startswith(told))
            assert Path(place).is_relative_to(installed)
    finally:
        cluster.close()
