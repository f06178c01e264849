"""The driver's runtime with real Spark: unmodified scripts, executors started directly."""

from __future__ import annotations

import re
import signal
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.spark.conftest import DriverRunner

pytestmark = pytest.mark.integration

_JAR = Path(__file__).parent / "java_udf" / "times-seven.jar"

_BATCH = """
import json, os, sys, time
import from_py_files, from_package  # importable before Spark is up, as with spark-submit
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType

def look():
    import from_py_files, from_package
    with open(SparkFiles.get("lookup.txt")) as lookup, open(SparkFiles.get("unpacked") + "/inside.txt") as inside:
        return from_py_files.ANSWER + from_package.ANSWER, lookup.read(), inside.read()

def where(_):
    time.sleep(0.2)
    with open("unpacked/inside.txt") as inside:
        return os.environ["SPARK_LOCAL_IP"], *look(), inside.read()

spark = (
    SparkSession.builder.master("local[*]").appName("batch")
    .config("spark.sql.warehouse.dir", "/tmp/from-code")
    .config("spark.driver.memory", "600m")
    .getOrCreate()
)
context = spark.sparkContext
spark.udf.registerJavaFunction("times_seven", "emberkeep.test.TimesSeven", LongType())
is_odd = udf(lambda number: number % 2 == 1, "boolean")
from runtime_under_test import runtime
added = context._jsc.sc()

def operations_of_a_query():
    # names of the stages of one query, and what they do, as they are seen while they run
    import threading
    def slow(number):
        time.sleep(0.25)
        return number
    query = spark.range(0, 8, 1, 2).select(udf(slow, "long")("id").alias("n")).groupBy("n").count()
    query = query.select(udf(slow, "long")("n").alias("n"))
    running = threading.Thread(target=query.collect)
    running.start()
    found = {}
    while running.is_alive():
        for stage in runtime.work().stages:
            found[stage.stage_id] = [stage.name, stage.operations]
        time.sleep(0.1)
    return list(found.values())

results = {
    "master": context.master,
    "here": look(),
    "sent_by_spark": [added.addedFiles().size(), added.addedArchives().size(), added.addedJars().size()],
    "py_files": context.getConf().get("spark.submit.pyFiles"),
    "places": sorted(set(context.parallelize(range(32), 16).map(where).collect())),
    "sevens": [row[0] for row in spark.sql("select times_seven(id) from range(1, 4)").collect()],
    "odd": spark.range(0, 1000, 1, 8).filter(is_odd("id")).groupBy().sum("id").collect()[0][0],
    "warehouse": spark.conf.get("spark.sql.warehouse.dir"),
    "from_conf": context.getConf().get("spark.emberkeep.test"),
    "operations": operations_of_a_query(),
    "heap_mb": context._jvm.java.lang.Runtime.getRuntime().maxMemory() // 2**20,
    "executors": sorted(runtime.executor_ids()),
}
first_id = context.applicationId
runtime.remove_executor("no such executor", "nothing happens")
runtime.remove_executor("0", "its host is considered lost")
while "0" in runtime.executor_ids():
    time.sleep(0.05)
results["after_removal"] = sorted(runtime.executor_ids())
first = runtime.work(up_to_now=True)
results["work"] = [first.active_tasks, first.active_stages, first.completed_jobs >= 3, first.total_tasks]
results["done"] = [first.completed_tasks]
spark.stop()

spark = SparkSession.builder.getOrCreate()
results["second"] = spark.range(100).count()
results["done"].append(runtime.work(up_to_now=True).completed_tasks)
results["here_again"] = look()
with open("added.txt", "w") as added:
    added.write("added")
with open("added_module.py", "w") as added:
    added.write("ANSWER = 43")
spark.sparkContext.addFile("added.txt")
spark.sparkContext.addPyFile("added_module.py")

def see_added(_):
    import added_module
    with open(SparkFiles.get("added.txt")) as added:
        return added_module.ANSWER, added.read(), look()

results["added"] = spark.sparkContext.parallelize([0], 1).map(see_added).collect()
results["ids_differ"] = spark.sparkContext.applicationId != first_id
print(json.dumps(results))
sys.exit(3)
"""


def _artefacts(directory: Path) -> dict[str, Any]:
    """As a node has bound them."""
    (directory / "from_py_files.py").write_text("ANSWER = 40\n")
    (directory / "lookup.txt").write_text("looked up")
    (directory / "unpacked").mkdir()
    (directory / "unpacked" / "inside.txt").write_text("unpacked")
    with zipfile.ZipFile(directory / "package.zip", "w") as package:
        package.writestr("from_package/__init__.py", "ANSWER = 2\n")
    return {
        "py_files": {name: str(directory / name) for name in ("from_py_files.py", "package.zip")},
        "files": {name: str(directory / name) for name in ("lookup.txt", "unpacked")},
        "jars": [str(_JAR)],
    }


def test_batch_script_runs_unmodified_with_all_kinds_of_artefacts(drivers: DriverRunner, tmp_path: Path) -> None:
    source = tmp_path / "artefacts"
    source.mkdir()
    done = drivers.run(
        _BATCH,
        hosts=("127.0.0.2", "127.0.0.3"),
        spark_conf={"spark.emberkeep.test": "yes", "spark.driver.memory": "400m"},
        **_artefacts(source),
    )

    assert done.exit_code == 3, done.stderr
    results = done.results()
    assert results["places"] == [[f"127.0.0.{n}", 42, "looked up", "unpacked", "unpacked"] for n in (2, 3)]
    assert results["here"] == results["here_again"] == [42, "looked up", "unpacked"]
    assert results["sent_by_spark"] == [0, 0, 0]
    assert results["py_files"] == f"{source / 'from_py_files.py'},{source / 'package.zip'}"
    assert results["added"] == [[43, "added", [42, "looked up", "unpacked"]]]
    assert (source / "unpacked/inside.txt").read_text() == "unpacked", "Spark clears only its own directory"
    assert results["sevens"] == [7, 14, 21]
    names, operations = zip(*results["operations"], strict=True)
    assert len(set(names)) < len(names), "which is why names are not enough"
    assert len(set(operations)) == len(operations)
    assert any("Exchange" in each for each in operations)
    assert all("CompletableFuture" not in each for each in names), "a stage has the name of its query"
    assert results["odd"] == sum(range(1, 1000, 2))
    assert results["warehouse"].endswith("/tmp/from-code")
    assert results["from_conf"] == "yes"
    assert 500 < results["heap_mb"] <= 600, "the code's own setting wins over --conf"
    assert results["executors"] == ["0", "1"]
    assert results["after_removal"] == ["1"]
    assert results["second"] == 100
    first, second = results["done"]
    assert first >= 16 + 8, "tasks of stages that have ended are counted"
    assert results["work"] == [0, 0, True, first]
    assert second > first, "those of the first SparkContext, too"
    assert results["ids_differ"]
    assert results["master"].startswith("spark://127.0.0.1:")
    _check_notices_and_events(done.stderr, done.report)


def _check_notices_and_events(stderr: str, report: dict[str, object]) -> None:
    notices = [line for line in stderr.splitlines() if line.startswith("emberkeep: ")]
    assert len(notices) == 1
    assert "spark.master=local[*] is overridden" in notices[0]
    # On a slow machine Spark says that it waits for its executors.
    waiting = "Initial job has not accepted any resources"
    others = [line for line in stderr.splitlines() if line not in notices and waiting not in line]
    assert len(others) == 1, others
    assert re.search(r"ERROR TaskSchedulerImpl: Lost executor 0 .*its host is considered lost", others[0])
    events = report["events"]
    assert isinstance(events, list)
    assert [event["event"] for event in events] == 2 * ["started", "stopping", "stopped"]
    assert "not-a-secret-at-all" not in " ".join(events[0]["executor_java_options"])
    assert not psutil.pid_exists(int(str(report["jvm_pid"])))


_STREAM = """
import json, sys, time
from pyspark.sql import SparkSession
from runtime_under_test import runtime

incoming, output, named = sys.argv[1:4]
spark = SparkSession.builder.getOrCreate()
lines = spark.readStream.text(incoming)
first = lines.writeStream.format("parquet").trigger(availableNow=True)
if named == "swapped":
    lines.writeStream.format("console").trigger(availableNow=True).start().awaitTermination()
first.start(path=output).awaitTermination()
seen = []
counts = lines.groupBy("value").count().writeStream.queryName("counts").outputMode("update")
query = counts.foreachBatch(lambda frame, batch: seen.append([batch, frame.count()])).start()
query.processAllAvailable()
progress = runtime.streaming_progress()
query.stop()
memory = lines.writeStream.format("memory").queryName("in_memory").start()
memory.processAllAvailable()
memory.stop()
print(json.dumps({
    "seen": seen,
    "rows": spark.read.parquet(output).count(),
    "progress": [[p.name, p.batch_id, p.state_rows, p.checkpoint_location] for p in progress if p.is_active],
    "ended": [[p.checkpoint_location, p.committed_batch] for p in progress if not p.is_active],
    "in_memory": spark.table("in_memory").count(),
}))
"""


@pytest.mark.long
def test_streaming_queries_without_a_location_go_on_after_a_restart(drivers: DriverRunner, tmp_path: Path) -> None:
    incoming, output = tmp_path / "incoming", tmp_path / "output"
    incoming.mkdir()
    (incoming / "a.txt").write_text("one\ntwo\n")
    first = drivers.run(_STREAM, str(incoming), str(output), "as it was")
    assert first.exit_code == 0, first.stderr
    root = drivers.checkpoints.as_uri()
    assert first.results()["seen"] == [[0, 2]]
    assert first.results()["progress"] == [["counts", 0, 2, f"{root}/query-counts"]]
    assert first.results()["ended"] == [[f"{root}/unnamed-0-parquet-append", 0]], "told once more, with its last batch"
    said = first.stderr.splitlines()
    # One line for each location given, and no noise of Spark's.
    assert len(said) == 2, first.stderr
    assert all("has no checkpointLocation: its checkpoint is at" in line for line in said)

    (incoming / "b.txt").write_text("two\nthree\nfour\n")
    second = drivers.run(_STREAM, str(incoming), str(output), "as it was")
    assert second.exit_code == 0, second.stderr
    results = second.results()
    assert results["seen"] == [[1, 3]], "the named query continues with batch 1 and reads only what is new"
    assert results["rows"] == 5, "so does the unnamed one: no row is written twice"
    assert results["progress"] == [["counts", 1, 4, f"{root}/query-counts"]]
    assert results["in_memory"] == 5, "a sink that cannot recover starts from nothing"

    swapped = drivers.run(_STREAM, str(incoming), str(output), "swapped")
    assert swapped.exit_code == 1
    message = swapped.report["message"]
    assert "now writes console (append mode)" in message
    assert f"belongs to a query that writes parquet {output} (append mode)" in message
    assert swapped.report["exception_type"] == "emberkeep.spark.errors.CheckpointIdentityError"


_KILLED = """
import os, signal
from pyspark.sql import SparkSession
from runtime_under_test import runtime

spark = SparkSession.builder.config("spark.ui.enabled", "true").getOrCreate()
print(spark.sparkContext.uiWebUrl)
os.kill(runtime.jvm_pid(), signal.SIGKILL)
spark.range(10).count()
"""


def test_killed_jvm_is_told_from_an_error_of_the_script(drivers: DriverRunner) -> None:
    done = drivers.run(_KILLED, hosts=())
    assert done.exit_code == 1
    assert done.report["kind"] == "raised"
    assert done.report["jvm_died"] == {"exit_code": None, "signal": signal.SIGKILL}
    assert "http://127.0.0.1:" in done.stdout, "the UI listens on the node's address"
    assert 'job.py", line 9' in done.stderr
    assert "emberkeep/spark/script/runner.py" not in done.stderr


_RAISES = """
from pyspark import SparkConf, SparkContext

context = SparkContext(conf=SparkConf().set("spark.python.worker.reuse", "false"))
assert context.parallelize([1, 2, 3]).sum() == 6

def inner():
    raise LookupError("not there")

inner()
"""


def test_exception_of_the_script_is_its_outcome(drivers: DriverRunner) -> None:
    done = drivers.run(_RAISES, spark_conf={"spark.executor.cores": "2", "spark.executor.instances": "1"})
    assert done.exit_code == 1
    assert done.report["kind"] == "raised"
    assert done.report["exception_type"] == "LookupError"
    assert done.report["message"] == "not there"
    assert done.report["jvm_died"] is None
    assert done.stderr == done.report["traceback_text"], "nothing else is on stderr, and no frame of ours"
    told = [event["event"] for event in done.report["events"]]
    assert told == ["started", "stopping", "stopped"], "left-over context is stopped"
    assert done.report["events"][0]["executor_cores"] == 2
    assert done.report["events"][0]["executor_instances"] == 1


_REFUSED = """
import json, time
from pathlib import Path
import psutil
from pyspark.sql import SparkSession
from runtime_under_test import executors, runtime

executors.secret = "a wrong one"
spark = SparkSession.builder.getOrCreate()
listening = psutil.Process(runtime.jvm_pid()).net_connections("tcp")
hosts = [c.laddr.ip.removeprefix("::ffff:") for c in listening if c.status == psutil.CONN_LISTEN]
while not executors.processes:
    time.sleep(0.05)
code = executors.processes[0].wait(100)
log = (Path(executors.scratch) / "executor-0" / "log").read_text()
registered = sorted(runtime.executor_ids())
print(json.dumps({"hosts": sorted(hosts), "failed": code != 0, "registered": registered, "log": log}))
"""


@pytest.mark.long
def test_driver_listens_on_its_node_only_and_refuses_an_executor_with_a_wrong_secret(drivers: DriverRunner) -> None:
    done = drivers.run(_REFUSED, host="127.0.0.5")
    assert done.exit_code == 0, done.stderr
    results = done.results()
    # py4j, the embedded Master and the Spark UI on loopback; scheduler and block manager on the node's address.
    assert results["hosts"] == ["127.0.0.1"] * 3 + ["127.0.0.5"] * 2
    assert results["failed"]
    assert results["registered"] == []
    assert "Authentication failed" in results["log"]
