"""A job that tells how far the clocks of its driver and of its executors are ahead, by the times of Python and JVM."""

from __future__ import annotations

import json
from collections.abc import Mapping

from emberkeep.jobs.model import JobStatus
from tests.integration.hosts.host import SHARED
from tests.integration.hosts.site import HostedCluster

_CLOSE = 300.0  # seconds; a task may wait for so long between the looks at a clock and at a file's time

# Arguments: a directory, and the number of executors. What is written there has the time of the file system, which is
# the same for all hosts. A barrier stage begins once all its tasks have room, here one on each executor.
SCRIPT = """
import json, os, socket, sys, tempfile, time

import pyarrow as pa
from pyspark.sql import SparkSession, functions as F

place, executors = sys.argv[1], int(sys.argv[2])

def ahead(seconds):
    with tempfile.TemporaryFile(dir=place) as file:
        return seconds - os.fstat(file.fileno()).st_mtime

def look(batches):
    for batch in batches:
        for row in batch.to_pylist():
            jvm = ahead(int(row["millis"]) / 1000)
            found = {"host": socket.gethostname(), "jvm": jvm, "python": ahead(time.time())}
            yield pa.RecordBatch.from_pylist([found])

spark = SparkSession.builder.config("spark.executor.cores", "1").getOrCreate()
jvm = ahead(spark._jvm.java.lang.System.currentTimeMillis() / 1000)
told = [{"who": "driver", "host": socket.gethostname(), "jvm": jvm, "python": ahead(time.time())}]
millis = F.expr("reflect('java.lang.System', 'currentTimeMillis')").alias("millis")
frame = spark.range(0, executors, 1, executors).select(millis)
for row in frame.mapInArrow(look, "host string, jvm double, python double", barrier=True).collect():
    told.append({"who": "executor", **row.asDict()})
print(json.dumps(told))
"""


def check_clocks_of_jobs(cluster: HostedCluster, ahead: Mapping[str, int]) -> None:
    """Fails unless processes of a job see the clock of their host. It uses all slots, of which each host has one.

    ``ahead``: how many seconds the clock of each task manager's host is ahead, by its name.
    """
    cluster.client.write(cluster.client.home() / "clocks.py", SCRIPT)
    job_id = cluster.submit("clocks.py", arguments=(str(SHARED), str(len(ahead))), executors=len(ahead))
    job = cluster.wait_for(job_id, lambda job: job.state.is_globally_terminal, "the job tells the time")
    assert job.state is JobStatus.FINISHED, job
    told = json.loads(cluster.command("logs", job_id))
    assert told[0]["who"] == "driver"
    assert sorted(each["host"] for each in told[1:]) == sorted(ahead), told
    for each in told:
        expected = ahead[each["host"]]
        assert abs(each["jvm"] - expected) < _CLOSE, told
        assert abs(each["python"] - expected) < _CLOSE, told
