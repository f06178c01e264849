"""Training run for a class-data archive: run a sample of what drivers and executors do in one JVM.

python -m emberkeep.spark.jvm.class_archive_training <archive to write>
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.driver_command import plan_jvm
from emberkeep.spark.jvm.driver_jvm import start_jvm
from emberkeep.spark.jvm.executor_command import BACKEND_CLASS
from emberkeep.spark.jvm.link_security import encryption
from emberkeep.spark.jvm.workload import run_batch, run_streams
from emberkeep.spark.model import DriverSettings

_DUMP_SECONDS = 300.0
_ENCRYPTED_LINKS = tuple(
    f"org.apache.spark.network.crypto.{name}"
    for name in ("AuthEngine", "AuthClientBootstrap", "AuthRpcHandler", "GcmTransportCipher")
)


def main() -> None:
    archive = Path(sys.argv[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="emberkeep-training-") as directory:
        settings = DriverSettings(
            host="127.0.0.1",
            spark_conf={
                "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={archive} -Xlog:cds*=error",
                "spark.sql.shuffle.partitions": "2",
            },
            scratch_dir=Path(directory),
            checkpoint_root="",
            secret=None,
            java=find_java(os.environ),
            app_name="training",
            driver_memory_mb=768,
        )
        jvm = start_jvm(plan_jvm({}, settings, os.environ), settings)
        try:
            _exercise(jvm.gateway, Path(directory))
        finally:
            jvm.stop(_DUMP_SECONDS)  # the JVM writes the archive when it ends


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
