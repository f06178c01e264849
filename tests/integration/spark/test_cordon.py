"""Executors that take no new task, with a real Spark: they keep their blocks, and work again when they are let."""

from __future__ import annotations

import pytest

from tests.integration.spark.conftest import DriverRunner

pytestmark = [pytest.mark.integration, pytest.mark.long]

SCRIPT = '''
import json, os, time
from py4j.protocol import Py4JNetworkError
from pyspark.sql import SparkSession
from emberkeep.spark.executors import cordon
from emberkeep.spark.errors import SparkUnavailable

spark = SparkSession.builder.config("spark.excludeOnFailure.enabled", "true").config(
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor", "1"
).config("spark.task.maxFailures", "8").getOrCreate()
context = spark.sparkContext
from runtime_under_test import runtime
while runtime.block_takers() != {"0", "1"}:
    time.sleep(0.05)

def work(_):
    time.sleep(0.02)

def hosts():
    """How many tasks each executor has done in one job."""
    before = done()
    context.parallelize(range(12), 12).map(work).collect()
    return {key: count - before[key] for key, count in done().items()}

def done():
    context._jsc.sc().listenerBus().waitUntilEmpty()
    summaries = context._jsc.sc().statusStore().executorList(False)
    found = [summaries.apply(index) for index in range(summaries.size())]
    return {str(one.id()): int(one.completedTasks()) for one in found if str(one.id()) != "driver"}

kept = context.parallelize(range(64), 8).map(lambda n: (n % 4, n)).reduceByKey(lambda a, b: a + b).cache()
kept.count()
told = {"before": hosts()}
left = runtime.blocks_left(["0"])["0"]
told["cordoned"] = sorted(runtime.cordon(["0", "unknown"]))
told["after"] = hosts()
told["kept"] = [left.shuffle > 0, runtime.blocks_left(["0"])["0"].shuffle == left.shuffle]
told["sum"] = kept.values().sum()
told["again"] = sorted(runtime.cordon(["0"]))

class LosesAnswer:
    def __init__(self, context):
        self.backend = backend_of(context)

    def decommissionExecutors(self, *arguments):
        cordon._backend = backend_of
        self.backend.decommissionExecutors(*arguments)
        raise Py4JNetworkError("the answer was lost")

backend_of, cordon._backend = cordon._backend, LosesAnswer
try:
    runtime.cordon(["1"])
except SparkUnavailable:
    told["retried"] = sorted(runtime.cordon(["1"]))
told["moved"] = hosts()
told["uncordoned"] = sorted(runtime.cordon([]))
told["back"] = hosts()
told["excluded before"] = sorted(runtime.excluded_executors())

def fails_on_0(n):
    if "executor-0" in os.environ["SPARK_LOCAL_DIRS"]:
        raise OSError("this node is bad")
    return n
context.parallelize(range(8), 8).map(fails_on_0).collect()
deadline = time.monotonic() + 60
while not runtime.excluded_executors() and time.monotonic() < deadline:
    time.sleep(0.1)
told["excluded"] = sorted(runtime.excluded_executors())
print(json.dumps(told))
'''


@pytest.mark.req("BLK-2")
def test_a_cordoned_executor_keeps_its_blocks_and_gets_no_task_until_it_is_let_again(drivers: DriverRunner) -> None:
    done = drivers.run(SCRIPT, hosts=("127.0.0.2", "127.0.0.3"))
    assert done.exit_code == 0, f"{done.stdout}\n{done.stderr}"
    told = done.results()
    assert told["before"]["0"] > 0
    assert (told["cordoned"], told["again"], told["uncordoned"]) == (["0"], ["0"], [])
    assert told["after"] == {"0": 0, "1": 12}
    assert told["kept"] == [True, True]
    assert told["sum"] == sum(range(64))
    assert told["retried"] == ["1"], "a lost answer is made up for"
    assert told["moved"] == {"0": 12, "1": 0}
    assert min(told["back"].values()) > 0, "both work again"
    assert (told["excluded before"], told["excluded"]) == ([], ["0"])
