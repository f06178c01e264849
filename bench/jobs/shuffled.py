"""A job that loses the node of its executors between two stages. Arguments: a directory, mebibytes, map tasks.

It writes its shuffle files, tells so with a file "ready" (the executors' hosts), waits for a file "go" and reads them.
"""

import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

directory, mebibytes, tasks = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
ROW_BYTES = 320  # as Spark writes it: the key and eight UUIDs
spark = (
    SparkSession.builder.appName("bench-evacuation")
    .config("spark.sql.shuffle.partitions", str(tasks))
    .config("spark.sql.adaptive.enabled", "false")
    .config("spark.shuffle.compress", "false")
    .getOrCreate()
)
context: Any = spark.sparkContext
internals = context._jsc.sc()
while internals.statusStore().executorList(True).size() < 3:  # the driver is one of them
    time.sleep(0.1)
rows = mebibytes * 1024 * 1024 // ROW_BYTES
table = spark.range(0, rows, 1, tasks).selectExpr("id", "repeat(uuid(), 8) AS text").repartition(tasks, "id")
shuffled = table._jdf.queryExecution().toRdd()  # one RDD: a second action reads the files of the first one
assert shuffled.count() == rows

nothing = context._jvm.java.util.ArrayList()
doubles = context._gateway.new_array(context._jvm.double, 0)


def stages() -> list[Any]:
    found = internals.statusStore().stageList(nothing, False, False, doubles, nothing)
    return [found.apply(index) for index in range(found.size())]


def completed() -> int:
    return sum(stage.numCompleteTasks() for stage in stages())


written = sum(stage.shuffleWriteBytes() for stage in stages())
executors = internals.statusStore().executorList(True)
hosts = {
    executors.apply(n).hostPort().split(":")[0] for n in range(executors.size()) if executors.apply(n).id() != "driver"
}
before = completed()
aside = directory / "aside"
aside.write_text(" ".join(sorted(hosts)))
aside.rename(directory / "ready")
while not (directory / "go").exists():
    time.sleep(0.05)
begin = time.time()
assert shuffled.count() == rows
end = time.time()
time.sleep(1.0)  # what Spark counts comes by its listener bus
print(f"WRITTEN {written / 1024**2:.1f}")
print(f"SECONDS {end - begin:.3f}")
print(f"ENDED {end:.3f}")
print(f"RECOMPUTED {completed() - before - tasks}")
spark.stop()
