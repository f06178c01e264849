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
from emberkeep.spark.jvm.driver_jvm import start_jvm
from emberkeep.spark.jvm.executor_command import BACKEND_CLASS
from emberkeep.spark.jvm.link_security import encryption
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
        jvm = start_jvm({}, settings)
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
    _batch(spark, directory)
    _streaming(spark, directory)
    spark.stop()
    master._1().shutdown()


def _batch(spark: Any, directory: Path) -> None:
    from pyspark.sql.functions import col, udf, window

    spark.sparkContext.parallelize(range(100), 4).map(lambda number: (number % 3, number)).groupByKey().count()
    double = udf(lambda number: 2 * number, "long")
    numbers = spark.range(1000).withColumn("twice", double("id"))
    numbers.write.parquet(str(directory / "numbers"))
    stored = spark.read.parquet(str(directory / "numbers"))
    timed = stored.join(spark.range(500), "id").withColumn("at", col("id").cast("timestamp"))
    timed.groupBy(window("at", "1 minute")).count().orderBy("window").collect()
    stored.limit(10).toPandas()
    stored.selectExpr("cast(id as string) as value").write.text(str(directory / "lines"))


def _streaming(spark: Any, directory: Path) -> None:
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
    lines = spark.readStream.text(str(directory / "lines"))
    writer = lines.groupBy("value").count().writeStream.outputMode("update").trigger(availableNow=True)
    writer = writer.foreachBatch(lambda frame, _batch: frame.count())
    writer.option("checkpointLocation", str(directory / "checkpoint")).start().awaitTermination()


if __name__ == "__main__":
    main()
