"""Training run for a class-data archive: run a sample of what drivers and executors do in one JVM.

python -m emberkeep.spark.jvm.class_archive_training <archive to write> <pid of the parent>

It leads a process group of its own and uses the archive's directory for its files. It ends with its parent.
"""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from emberkeep.base.processes.background import end_with_parent
from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.driver_command import plan_jvm
from emberkeep.spark.jvm.driver_jvm import start_jvm
from emberkeep.spark.jvm.executor_command import BACKEND_CLASS
from emberkeep.spark.jvm.link_security import encryption
from emberkeep.spark.jvm.workload import run_batch, run_streams
from emberkeep.spark.model import DriverSettings

_DUMP_SECONDS = 3600.0  # at idle priority, on a busy machine; the caller has a limit for the whole run
_ENCRYPTED_LINKS = tuple(
    f"org.apache.spark.network.crypto.{name}"
    for name in ("AuthEngine", "AuthClientBootstrap", "AuthRpcHandler", "GcmTransportCipher")
)


def main() -> None:
    archive = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(os.getpid(), signal.SIGKILL))
    end_with_parent(int(sys.argv[2]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("PYSPARK_SUBMIT_ARGS", None)  # those of the job or the shell from which this build was started
    written = f"-XX:ArchiveClassesAtExit={archive}"
    events = archive.parent.absolute() / "events"
    events.mkdir()
    settings = DriverSettings(
        host="127.0.0.1",
        spark_conf={
            "spark.driver.extraJavaOptions": f"{shlex.quote(written)} -Xlog:cds*=error",
            "spark.sql.shuffle.partitions": "2",
        },
        scratch_dir=archive.parent / "training",
        checkpoint_root="",
        secret=None,
        java=find_java(os.environ),
        app_name="training",
        driver_memory_mb=768,
        event_log=events,
        ui_key=secrets.token_bytes(32),
    )
    jvm = start_jvm(plan_jvm({}, settings, os.environ), settings)
    try:
        _exercise(jvm.gateway, settings.scratch_dir)
    finally:
        jvm.stop(_DUMP_SECONDS)  # the JVM writes the archive when it ends
    code = jvm.gateway.proc.returncode
    if code != 0:  # it may have been killed while it wrote
        sys.exit(f"the training run's JVM ended with exit code {code}")


def _exercise(gateway: Any, directory: Path) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    java = gateway.jvm
    for name in (BACKEND_CLASS, "org.apache.spark.deploy.master.Master", *_ENCRYPTED_LINKS):
        java.java.lang.Class.forName(name)
    master = java.org.apache.spark.deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, java.SparkConf(False))
    conf = SparkConf(_jvm=java).setMaster("local[2]").set("spark.authenticate", "true")
    conf.setAll(list(encryption({}).items()))
    spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
    run_batch(spark, directory)
    run_streams(spark, directory)
    _for_each_batch(spark, directory)
    spark.stop()
    master._1().shutdown()


def _for_each_batch(spark: Any, directory: Path) -> None:
    lines = spark.readStream.text(str(directory / "lines"))
    writer = lines.writeStream.trigger(availableNow=True).foreachBatch(lambda frame, _batch: frame.count())
    writer.option("checkpointLocation", str(directory / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main()
