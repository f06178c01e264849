"""Scripts and libraries of other projects, unchanged: as jobs of a cluster they do what they do under spark-submit."""

from __future__ import annotations

import csv
import subprocess
from pathlib import Path

import pytest

from tests.campaign import drawn
from tests.integration.clusters import Cluster
from tests.integration.commands import Shell
from tests.integration.public_scripts.both_ways import run_both_ways
from tests.integration.public_scripts.packaged import (
    MEASURES,
    MEASURING,
    PYTHON,
    QUERIES,
    SCRIPTS,
    TABLES,
)
from tests.integration.public_scripts.scripts import Script
from tests.integration.public_scripts.web_pages import write_pages

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.skipif(PYTHON is None, reason="`make public-scripts` brings the scripts"),
]


@pytest.fixture(scope="module")
def python() -> Path:
    assert PYTHON is not None
    return PYTHON


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Path:
    """The tables of TPC-DS, with a hundredth of the rows of its smallest size."""
    place = tmp_path_factory.mktemp("tables")
    words = ("tpcds", "parquet", "-s", "0.01", "--parts=1", f"--output-dir={place}")
    subprocess.run([str(python.with_name("tpcgen-cli")), *words], check=True, capture_output=True)
    return place


@pytest.fixture
def files(cluster: Cluster, plain: Shell, tables: Path) -> None:
    """What the scripts read, below both directories."""
    for place in (plain.work, cluster.shell.work):
        write_pages(place)
        (place / TABLES).mkdir()
        for table in tables.iterdir():
            (place / TABLES / table.name).symlink_to(table)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("script", drawn(SCRIPTS, 4), ids=lambda script: script.path.stem)
def test_a_job_does_what_it_does_under_spark_submit(cluster: Cluster, plain: Shell, script: Script) -> None:
    alone, job = run_both_ways(cluster, plain, script.path, *script.options, arguments=script.arguments)
    assert (alone.code, job.code) == (0, 0), f"{alone}\n{job}"
    assert script.differences(alone.out, job.out, job.err) == []
    rows = script.rows(plain.work)
    assert all(rows.values())
    assert script.rows(cluster.shell.work) == rows


@pytest.mark.usefixtures("files")
def test_queries_of_tpcds_are_measured(cluster: Cluster, plain: Shell) -> None:
    """The script measures with a listener in the driver's JVM, from a jar, and writes a file."""
    output = "measured.csv"
    arguments = ("-d", TABLES, "-n", "1", "-r", "1", "-s", "0", "-q", ",".join(QUERIES[:3]), "-o", output)
    alone, job = run_both_ways(cluster, plain, MEASURING, "--driver-class-path", str(MEASURES), arguments=arguments)
    assert (alone.code, job.code) == (0, 0), f"{alone}\n{job}"
    read = _rows_read(plain.work / output)
    assert list(read) == list(QUERIES[:3])
    assert _rows_read(cluster.shell.work / output) == read


def _rows_read(measured: Path) -> dict[str, int]:
    """How many rows of tables each query has read."""
    with measured.open(newline="") as lines:
        return {row["query"]: int(row["recordsRead"]) for row in csv.DictReader(lines)}
