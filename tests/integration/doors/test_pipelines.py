"""Declarative pipelines on a cluster: unchanged projects, whose driver is killed in the middle of a flow."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset
import pytest

from emberkeep.base.ids import JobId
from tests.integration.clusters import QUICK, Cluster
from tests.integration.commands import SMALL, Shell

pytestmark = [pytest.mark.integration, pytest.mark.long]

FILES, ROWS = 14, 5
SPEC = """
name: shop
storage: file://{directory}/pipeline-storage
libraries:
  - glob:
      include: transformations/**
configuration:
  spark.sql.shuffle.partitions: "2"
"""
ORDERS = """
import json
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

spark = SparkSession.active()
FACTOR = json.load(open("lookup.json"))["factor"]  # beside the specification

@dp.table
def orders() -> DataFrame:
    read = spark.readStream.schema("id long, price double").option("maxFilesPerTrigger", 1)
    return read.json("{directory}/orders").withColumn("doubled", col("price") * lit(FACTOR))

@dp.materialized_view
def total() -> DataFrame:
    return spark.read.table("orders").groupBy().agg({{"id": "sum", "doubled": "sum"}}).toDF("ids", "doubled")
"""
BIG = "CREATE MATERIALIZED VIEW big AS SELECT id FROM orders WHERE price > 12"


@pytest.fixture
def cluster(tmp_path: Path, class_archive: Path) -> Iterator[Cluster]:
    cluster = Cluster(Shell(tmp_path / "site", class_archive.parent))
    try:
        cluster.up("--slots", "2", "--memory", "4g", *QUICK)
        yield cluster
    finally:
        cluster.close()


def write_project(shell: Shell) -> Path:
    directory = shell.directory / "data"
    (directory / "orders").mkdir(parents=True)
    for number in range(FILES):
        rows = [{"id": ROWS * number + row, "price": float(number)} for row in range(ROWS)]
        (directory / "orders" / f"{number:02}.json").write_text("\n".join(map(json.dumps, rows)))
    shell.write("shop/spark-pipeline.yml", SPEC.format(directory=directory))
    shell.write("shop/transformations/orders.py", ORDERS.format(directory=directory))
    shell.write("shop/transformations/big.sql", BIG)
    shell.write("shop/lookup.json", '{"factor": 2}')
    return directory


def rows(directory: Path, table: str) -> list[dict[str, float]]:
    return list(pyarrow.dataset.dataset(directory / "warehouse" / table, format="parquet").to_table().to_pylist())


def test_a_pipeline_survives_its_driver_and_each_row_counts_once(cluster: Cluster) -> None:
    shell = cluster.shell
    directory = write_project(shell)
    metastore = f"jdbc:derby:;databaseName={directory}/metastore;create=true"
    static = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
    }
    settings = [word for key, value in static.items() for word in ("--conf", f"{key}={value}")]
    spec = ("--spec", "shop/spark-pipeline.yml", "--num-executors", "1", *SMALL, *settings)
    job_id = JobId(shell.done("pipelines", "run", "--detach", "-q", *spec).out.strip())
    shown = cluster.wait_for(
        job_id, lambda job: any(query.batch_id >= 2 for query in job.emberkeep.queries), "the flow runs"
    )
    assert "orders" in shown.emberkeep.queries[0].name
    os.kill(cluster.wait_for_driver(job_id), signal.SIGKILL)
    job = cluster.wait_for_end(job_id)
    assert (job.name, job.emberkeep.attempt) == ("shop", 2)
    ids = range(FILES * ROWS)
    assert rows(directory, "total") == [{"ids": sum(ids), "doubled": 2.0 * ROWS * sum(range(FILES))}]
    assert sorted(row["id"] for row in rows(directory, "big")) == [*ids[-ROWS:]]
    assert "Run is COMPLETED" in cluster.output(job_id, attempt=2)

    # A changed project that is wrong is found without running it.
    shell.write("shop/transformations/big.sql", BIG.replace("orders", "odrers"))
    checked = shell.run("pipelines", "dry-run", *spec)
    assert checked.code == 1, checked
    assert "Failed to resolve flows in the pipeline" in checked.err, checked
