"""Scripts of tests/integration/spark/test_stop.py: what runs inside a driver process."""

from __future__ import annotations

# What the scripts share: input in chunks, written as a whole; the steps of procedures from a thread beside the script.
COMMON = '''
import json, os, random, sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession, functions as F
from emberkeep.base.ids import JobId
from emberkeep.lifecycle.manifest import Manifest
from emberkeep.lifecycle.model import Procedure
from runtime_under_test import runtime

root = Path(sys.argv[1])
steps = runtime.procedures
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
START = 1_600_000_000

def nothing(*_):
    pass

def put(directory, name, rows):
    """A file that appears as a whole; ``rows``: (key, second of the event)."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"k": key, "n": number, "t": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + second))})
             for number, (key, second) in enumerate(rows)]
    (directory / f".{name}").write_text("\\n".join(lines))
    os.rename(directory / f".{name}", directory / f"{name}.json")

def stream(directory, delay="5 seconds"):
    directory.mkdir(parents=True, exist_ok=True)
    read = spark.readStream.schema("k string, n long, t timestamp").option("maxFilesPerTrigger", 1)
    return read.json(str(directory)).withWatermark("t", delay)

def batch(files):
    if not files:
        return spark.createDataFrame([], "k string, n long, t timestamp")
    return spark.read.schema("k string, n long, t timestamp").json([str(file) for file in files])

def heading(attempt=1):
    return Manifest(job_id=JobId("a" * 32), job_name="test", attempt=attempt, trigger_id="b" * 32,
                    procedure=Procedure.SUSPEND, created_ms=1, spark_version="4.3.0", emberkeep_version="0",
                    queries=(), files=())
'''

# Every kind of state over the same rows; each as a stream and as a batch job, which gives the answer.
KINDS = '''
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupStateTimeout
import pandas as pd

def windows(rows):
    return rows.groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("c")).select(
        F.unix_timestamp(F.col("window.start")).alias("a"), "k", "c")

def sessions(rows):
    return rows.groupBy(F.session_window("t", "4 seconds"), "k").agg(F.count("*").alias("c")).select(
        F.unix_timestamp(F.col("session_window.end")).alias("a"), "k", "c")

def distinct(rows):
    streaming = rows.isStreaming
    if streaming:
        rows = rows.dropDuplicatesWithinWatermark(["k"])
    else:
        rows = rows.dropDuplicates(["k"])
    return rows.select(F.lit(0).alias("a"), "k", F.lit(1).alias("c"))

def joined(rows):
    left = rows.where("n % 2 = 0").select(F.col("k").alias("k"), F.col("t").alias("lt"), F.col("n").alias("ln"))
    right = rows.where("n % 2 = 1").select(F.col("k").alias("rk"), F.col("t").alias("rt"), F.col("n").alias("rn"))
    on = F.expr("k = rk and rt >= lt and rt <= lt + interval 2 seconds")
    return left.join(right, on, "leftOuter").select(
        F.unix_timestamp("lt").alias("a"), "k", F.coalesce("rn", F.lit(-1)).alias("c"))

def counted(key, frames, state):
    if state.hasTimedOut:
        (count,) = state.get
        state.remove()
        yield pd.DataFrame({"a": [0], "k": [key[0]], "c": [count]})
        return
    count = state.get[0] if state.exists else 0
    latest = 0
    for frame in frames:
        count += len(frame)
        latest = max(latest, int(frame["t"].max().timestamp() * 1000))
    state.update((count,))
    state.setTimeoutTimestamp(max(latest, state.getCurrentWatermarkMs()) + 3_600_000)

def grouped(rows):
    if not rows.isStreaming:
        return rows.groupBy("k").count().select(F.lit(0).alias("a"), "k", F.col("count").alias("c"))
    return rows.groupBy("k").applyInPandasWithState(
        counted, "a long, k string, c long", "c long", "append", GroupStateTimeout.EventTimeTimeout)

def none():
    return pd.DataFrame({"a": pd.Series(dtype="int64"), "k": pd.Series(dtype="str"), "c": pd.Series(dtype="int64")})

class Counter(StatefulProcessor):
    """Counts rows; its timer sets another one before it gives the count."""
    def init(self, handle):
        self.handle = handle
        self.count = handle.getValueState("count", "c long, fired boolean")
    def handleInputRows(self, key, rows, timerValues):
        count = self.count.get()[0] if self.count.exists() else 0
        if not self.count.exists():
            self.handle.registerTimer((START + 100_000_000) * 1000)  # the watermark of a first batch is 0
        self.count.update((count + sum(len(frame) for frame in rows), False))
        yield none()
    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        count, fired = self.count.get()
        if not fired:
            self.count.update((count, True))
            self.handle.registerTimer(expiredTimerInfo.getExpiryTimeInMs() + 1000)
            yield none()
            return
        self.count.clear()
        yield pd.DataFrame({"a": [0], "k": [key[0]], "c": [count]})
    def close(self):
        pass

def transformed(rows):
    if not rows.isStreaming:
        return grouped(rows)
    return rows.groupBy("k").transformWithStateInPandas(
        Counter(), "a long, k string, c long", "append", "eventtime")

KINDS = {"windows": windows, "sessions": sessions, "distinct": distinct, "joined": joined, "grouped": grouped,
         "transformed": transformed}
'''

# Two queries, one of them without a name and into a table, over the same files; stopped, restored, killed in the middle
# of a drain. The catalog of tables lives only as long as its driver.
STORY = (
    COMMON
    + """
import signal
mode, name = sys.argv[2], sys.argv[3]
incoming = root / "in"
rows = stream(incoming)
windows = rows.groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("c")).select(
    F.unix_timestamp(F.col("window.start")).alias("a"), "k", "c")
story = {"batches": [], "awaited": []}

def fill(name, first):
    put(incoming, name, [("abc"[second % 3], second) for second in range(first, first + 12)])

def save(name):
    return steps.write_savepoint(heading(), str(root / name), {}, nothing).path

def all_read():
    for query in queries:
        query.processAllAvailable()

def first():
    all_read()
    steps.pause(nothing)
    steps.pauses.resume()
    save("early")
    fill("2", 24)
    all_read()
    steps.finish_batches(nothing)
    story["active"] = [queries[0].isActive, len(spark.streams.active), queries[0]._jsq.isActive()]
    fill("3", 36)  # nobody has read it
    save("suspended")
    steps.end()

def crash():
    all_read()
    fill("4", 48)
    all_read()
    steps.finish_batches(nothing)
    fill("5", 60)  # nobody has read it

    def killed(*_):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(3600)

    steps._drain._run_planned = killed
    steps.drain(nothing)

def roll():
    steps.finish_batches(nothing)
    steps.drain(nothing)
    save("drained")
    steps.end()

def after():
    fill("6", 72)
    all_read()
    steps.finish_batches(nothing)
    steps.drain(nothing)
    steps.end()

if mode == "first":
    fill("0", 0)
    fill("1", 12)
def lead():
    try:
        {"first": first, "crash": crash, "roll": roll, "after": after}[mode]()
    except BaseException as error:
        story["failed"] = repr(error)
        os.kill(os.getpid(), signal.SIGTERM)

queries = []
try:
    queries.append(windows.writeStream.queryName("windows").format("parquet").start(str(root / "windows")))
except Exception as error:
    story["refused"] = f"{type(error).__name__}: {error}"
    spark.sql(f"CREATE TABLE kept (a BIGINT, k STRING, c BIGINT) USING parquet LOCATION '{root}/windows'")
    writer = windows.writeStream.queryName("windows").format("parquet")
    starts = {"elsewhere": lambda: writer.start(str(root / "elsewhere")), "kept": lambda: writer.toTable("kept"),
              "new table": lambda: writer.toTable("default.fresh")}
    for name, start in starts.items():
        try:
            start()
        except Exception as other:
            story[name] = f"{type(other).__name__}: {other}"
    print(json.dumps(story))
    sys.exit(0)
queries.append(rows.select("k", "n", "t").writeStream.format("json").option("path", str(root / "raw"))
    .option("checkpointLocation", str(root / name)).toTable("raw"))
threading.Thread(target=lead, daemon=True).start()
story["awaited"] += [queries[0].awaitTermination(0.5), spark.streams.awaitAnyTermination(0.5)]
spark.streams.awaitAnyTermination()
queries[1].awaitTermination()
story["ended"] = [query.isActive for query in queries]
if mode == "after":
    story["windows"] = sorted(map(str, map(tuple, spark.read.parquet(str(root / "windows")).collect())))
    files = [[incoming / f"{n}.json" for n in part] for part in ("01234", "56")]
    answers = []
    for part in files:
        answers += batch(part).groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("c")).select(
            F.unix_timestamp(F.col("window.start")).alias("a"), "k", "c").collect()
    story["expected"] = sorted(map(str, map(tuple, answers)))
    raw = spark.read.schema("k string, n long, t timestamp").json(str(root / "raw"))
    story["raw"] = sorted(row.t.timestamp() - START for row in raw.collect())
print(json.dumps(story))
"""
)

# A driver that ends in the batch of its second query, while a stop waits for that batch; and the next one, which runs
# that batch in the start of the query. There the stop has come as far as to the start of the first query.
SLOW_START = (
    COMMON
    + """
import signal
from emberkeep.spark.stopping import procedures
procedures._SETTLE_SECONDS = 0.0  # as if the start of the second query had taken longer
is_next = sys.argv[2] == "next"
begun, going_on = threading.Event(), threading.Event()
story = {}

def slow(frame, number):
    frame.collect()
    begun.set()
    if not is_next:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(3600)
    going_on.wait(100)

def note(text):
    if text.startswith("waiting for the script"):
        going_on.set()

def lead():
    try:
        begun.wait(100)
        steps.check(str(root / "savepoint"), note)
        steps.finish_batches(note)
        steps.write_savepoint(heading(2), str(root / "savepoint"), {}, nothing)
        story["saved"] = sorted(path.name for path in (root / "savepoint" / "queries").iterdir())
    except BaseException as error:
        story["failed"] = repr(error)
    going_on.set()
    steps.end()

if is_next:
    threading.Thread(target=lead, daemon=True).start()
else:
    put(root / "in", "0", [("a", 1)])
rows = stream(root / "in")
queries = [
    rows.writeStream.queryName("first").format("noop").start(),
    rows.writeStream.queryName("second").foreachBatch(slow).start(),
]
for query in queries:
    query.awaitTermination()
print(json.dumps(story))
"""
)
