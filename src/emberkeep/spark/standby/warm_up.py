"""The process that warms a standby JVM: ``python -P -m emberkeep.spark.standby.warm_up <directory> driver|executor``.

It is a process of its own so that nothing of the warm-up stays in the Python process of the driver. It finds the JVM as
PySpark does, by the variables PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any

from emberkeep.base.processes.priority import lower
from emberkeep.spark.jvm.configuration import master_configuration
from emberkeep.spark.jvm.embedded_master import EmbeddedMaster
from emberkeep.spark.jvm.event_log import event_log_settings
from emberkeep.spark.jvm.link_security import authentication, encryption
from emberkeep.spark.jvm.spark_ui import access_settings
from emberkeep.spark.jvm.workload import ROUNDS, run_batch, run_streams
from emberkeep.spark.standby.reflection import Reflection
from emberkeep.spark.standby.reset import remember, reset
from emberkeep.spark.standby.warm_links import run_links

FOR_DRIVER, FOR_EXECUTOR = "driver", "executor"
_LOOPBACK = "127.0.0.1"
_UI_KEY_BYTES = 32


def main() -> None:
    """Warm the JVM and reset it. Any failure ends this process with an exit code other than 0."""
    from pyspark.java_gateway import launch_gateway

    lower(os.getpid())
    directory, kind = Path(sys.argv[1]), sys.argv[2]
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    reflection = Reflection(gateway)
    before = remember(reflection)
    for number in range(ROUNDS):
        _work(gateway, reflection, directory / str(number), for_driver=kind == FOR_DRIVER)
    reset(reflection, before)


def _work(gateway: Any, reflection: Reflection, directory: Path, *, for_driver: bool) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    jvm = gateway.jvm
    secured = authentication("warm-up") | encryption({})
    master = EmbeddedMaster(jvm, master_configuration(secured))
    conf = SparkConf(_jvm=jvm).setMaster("local[2]").setAppName("warm-up").setAll(list(secured.items()))
    for key, value in (_settings(directory) | page_and_log(directory, for_driver=for_driver)).items():
        conf.set(key, value)
    spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
    try:
        run_batch(spark, directory)
        run_streams(spark, directory)
        run_links(spark.sparkContext, reflection)
    finally:
        spark.stop()
        master.stop()


def _settings(directory: Path) -> dict[str, str]:
    return {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }


def page_and_log(directory: Path, *, for_driver: bool) -> dict[str, str]:
    """Return the settings of the Spark UI and of the event log, which drivers have by default."""
    if not for_driver:
        return {"spark.ui.enabled": "false"}
    events = directory / "events"
    events.mkdir(parents=True)
    page = {"spark.ui.enabled": "true", "spark.ui.port": "0", **access_settings(secrets.token_bytes(_UI_KEY_BYTES))}
    return page | event_log_settings(events)


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    main()
