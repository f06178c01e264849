"""Declarative pipelines on a cluster: unchanged projects, killed or cancelled in the middle of a flow."""

from __future__ import annotations

import json
import os
import signal

import pyarrow.dataset
import pytest

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus
from tests.integration.clusters import Cluster
from tests.integration.commands import SMALL, Shell
from tests.integration.conditions import until

pytestmark = [pytest.mark.integration, pytest.mark.long]

FILES, ROWS = 14, 5  # of the orders at first, and in each file
TABLES = ("orders", "big", "total")
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
# Ends the streaming flow after its third micro-batch, as a stop of Emberkeep would end a query: between two batches, or
# in one that is then done again.
ENDS_EARLY = """
import threading, time
from pyspark import SparkContext

def end_early():
    sql = SparkContext._active_spark_context._jvm.org.apache.spark.sql
    active = sql.classic.SparkSession.getDefaultSession().get().sharedState().activeStreamingQueries()
    while True:
        for query in filter(None, map(active.get, list(active))):
            if query.lastProgress() is not None and query.lastProgress().batchId() >= 2:
                query.stop()
                return
        time.sleep(0.05)

threading.Thread(target=end_early, daemon=True).start()
"""


class Project:
    """A pipeline's project in ``shop``, with orders to read and a catalog that outlives a driver."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.directory = shell.directory / "data"
        (self.directory / "orders").mkdir(parents=True)
        self.files = 0
        self.add_orders(FILES)
        shell.write("shop/spark-pipeline.yml", SPEC.format(directory=self.directory))
        shell.write("shop/transformations/orders.py", ORDERS.format(directory=self.directory))
        shell.write("shop/transformations/big.sql", BIG)
        shell.write("shop/lookup.json", '{"factor": 2}')

    def add_orders(self, files: int) -> None:
        """Write further files, each of which becomes a micro-batch."""
        for number in range(self.files, self.files + files):
            rows = [{"id": ROWS * number + row, "price": float(number)} for row in range(ROWS)]
            (self.directory / "orders" / f"{number:02}.json").write_text("\n".join(map(json.dumps, rows)))
        self.files += files

    @property
    def options(self) -> tuple[str, ...]:
        static = {
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.warehouse.dir": f"{self.directory}/warehouse",
            "spark.hadoop.javax.jdo.option.ConnectionURL": (
                f"jdbc:derby:;databaseName={self.directory}/metastore;create=true"
            ),
        }
        settings = (word for key, value in static.items() for word in ("--conf", f"{key}={value}"))
        return ("--spec", "shop/spark-pipeline.yml", "--num-executors", "1", *SMALL, *settings)

    def begun(self, cluster: Cluster) -> JobId:
        """Start a run; return its job once the streaming flow is in the middle of its files."""
        job_id = JobId(self.shell.done("pipelines", "run", "--detach", "-q", *self.options).out.strip())
        job = cluster.wait_for(
            job_id, lambda job: any(query.batch_id >= 2 for query in job.emberkeep.queries), "the flow runs"
        )
        assert "orders" in job.emberkeep.queries[0].name
        return job_id

    def rows(self, table: str) -> list[dict[str, float]]:
        place = self.directory / "warehouse" / table
        return list(pyarrow.dataset.dataset(place, format="parquet").to_table().to_pylist())

    def assert_total_of(self, files: int) -> None:
        expected = {"ids": sum(range(files * ROWS)), "doubled": 2.0 * ROWS * sum(range(files))}
        assert self.rows("total") == [expected]


def flow_states(shell: Shell, job_id: JobId, attempt: int) -> dict[str, list[str]]:
    """By table, the states of its flow that the attempt's events name, oldest first."""
    lines = shell.done("events", job_id, "--type", "flow", "--limit", "1000", "-o", "json").out.splitlines()
    events = [event for event in map(json.loads, lines) if event["attempt"] == attempt]
    states: dict[str, list[str]] = {}
    for event in events:
        states.setdefault(event["details"]["flow"].rpartition(".")[2], []).append(event["details"]["state"])
    return states


def test_a_pipeline_survives_its_driver_and_each_row_counts_once(cluster: Cluster) -> None:
    shell, project = cluster.shell, Project(cluster.shell)
    job_id = project.begun(cluster)
    until(lambda: flow_states(shell, job_id, 1).get("orders", [])[-1:] == ["RUNNING"], "the event that the flow runs")
    assert "<h2>Flows</h2>" in cluster.shown(f"/jobs/{job_id}")
    assert "\nFlows\n" in shell.done("info", job_id).out
    os.kill(cluster.wait_for_driver(job_id), signal.SIGKILL)
    job = cluster.wait_for_end(job_id)
    assert (job.name, job.emberkeep.attempt) == ("shop", 2)
    project.assert_total_of(FILES)
    assert sorted(row["id"] for row in project.rows("big")) == [*range(FILES * ROWS)][-ROWS:]
    assert "Run is COMPLETED" in cluster.output(job_id, attempt=2)
    assert sorted((flow.name.rpartition(".")[2], flow.state) for flow in job.emberkeep.flows) == [
        (table, "COMPLETED") for table in sorted(TABLES)
    ]
    states = flow_states(shell, job_id, 2)
    assert {table: told[-1] for table, told in states.items()} == dict.fromkeys(TABLES, "COMPLETED")

    # A changed project that is wrong is found without running it.
    shell.write("shop/transformations/big.sql", BIG.replace("orders", "odrers"))
    checked = shell.run("pipelines", "dry-run", *project.options)
    assert checked.code == 1, checked
    assert "Failed to resolve flows in the pipeline" in checked.err, checked


def test_a_run_that_was_cancelled_is_continued_by_the_next_one(cluster: Cluster) -> None:
    shell, project = cluster.shell, Project(cluster.shell)
    job_id = project.begun(cluster)
    refused = shell.run("stop", job_id)
    assert refused.code != 0
    assert "the job runs no streaming query" in refused.err, refused
    assert "'emberkeep cancel'" in refused.err, refused
    shell.done("cancel", job_id)
    cluster.wait_for_end(job_id, JobStatus.CANCELED)
    done = shell.done("pipelines", "run", "-q", *project.options)
    assert "Run is COMPLETED" in done.out, done
    project.assert_total_of(FILES)
    commits = (project.directory / "pipeline-storage").rglob("commits/*")
    batches = sorted(int(path.name) for path in commits if path.name.isdecimal())
    assert batches == list(range(FILES)), "each file was one batch of one of the two runs"


def test_only_what_a_run_is_asked_for_is_changed(cluster: Cluster) -> None:
    shell, project = cluster.shell, Project(cluster.shell)
    shell.done("pipelines", "dry-run", "-q", *project.options)
    assert not list((project.directory / "warehouse").rglob("*.parquet"))
    assert not (project.directory / "pipeline-storage").exists()
    shell.done("pipelines", "run", "-q", *project.options)
    project.assert_total_of(FILES)

    (project.directory / "orders" / "00.json").unlink()  # read before, and gone
    project.add_orders(1)
    shell.done("pipelines", "run", "-q", "--refresh", "big", *project.options)
    project.assert_total_of(FILES)
    shell.done("pipelines", "run", "-q", "--refresh", "orders,total", *project.options)
    project.assert_total_of(FILES + 1)
    assert len(project.rows("big")) == ROWS
    shell.done("pipelines", "run", "-q", "--full-refresh", "orders", "--refresh", "total", *project.options)
    lost = sum(range(ROWS))  # ids of the file that is gone
    assert project.rows("total")[0]["ids"] == sum(range(project.files * ROWS)) - lost


def test_spark_takes_a_flow_that_ends_early_for_complete(cluster: Cluster) -> None:
    """Why `emberkeep stop` does not end flows: the run would update the tables behind them from a part of the rows."""
    shell, project = cluster.shell, Project(cluster.shell)
    shell.write("shop/transformations/ends_early.py", ENDS_EARLY)
    done = shell.done("pipelines", "run", "-q", *project.options)
    assert "Run is COMPLETED" in done.out, done
    (total,) = project.rows("total")
    assert 0 < total["ids"] < sum(range(FILES * ROWS)), "complete, as Spark says, and not all rows"
    (shell.work / "shop/transformations/ends_early.py").unlink()
    shell.done("pipelines", "run", "-q", *project.options)
    project.assert_total_of(FILES)
