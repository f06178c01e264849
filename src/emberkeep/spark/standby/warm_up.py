"""What happens to a JVM while it is warmed: it runs the workload twice, and is reset."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from emberkeep.spark.jvm.configuration import master_configuration
from emberkeep.spark.jvm.embedded_master import EmbeddedMaster
from emberkeep.spark.jvm.event_log import event_log_settings
from emberkeep.spark.jvm.link_security import authentication, encryption
from emberkeep.spark.jvm.spark_ui import access_settings
from emberkeep.spark.jvm.workload import ROUNDS, run_batch, run_restarts, run_streams
from emberkeep.spark.standby.reflection import Reflection
from emberkeep.spark.standby.reset import remember, reset
from emberkeep.spark.standby.state_access import StateAccess
from emberkeep.spark.standby.warm_links import run_links

_LOOPBACK = "127.0.0.1"
_UI_KEY_BYTES = 32


def warm_jvm(directory: Path, state: StateAccess | None, *, for_driver: bool) -> None:
    """Warm the JVM to which PySpark connects, and reset it.

    ``directory``: for the files of the warm-up. ``state``: the gateway through which a stream keeps its checkpoint;
    None if no job can use one. Raises whatever PySpark raises, and SparkInternalsMissing.
    """
    from pyspark.java_gateway import launch_gateway

    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    reflection = Reflection(gateway)
    before = remember(reflection)
    for number in range(ROUNDS):
        _work(gateway, reflection, directory / str(number), state, for_driver=for_driver)
    reset(reflection, before)


def _work(
    gateway: Any, reflection: Reflection, directory: Path, state: StateAccess | None, *, for_driver: bool
) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    jvm = gateway.jvm
    secured = authentication("warm-up") | encryption({})
    master = EmbeddedMaster(jvm, master_configuration(secured))
    conf = SparkConf(_jvm=jvm).setMaster("local[2]").setAppName("warm-up").setAll(list(secured.items()))
    access = {} if state is None else state.settings()
    for key, value in (_settings(directory) | page_and_log(directory, for_driver=for_driver) | access).items():
        conf.set(key, value)
    spark = SparkSession(SparkContext(conf=conf, gateway=gateway))
    try:
        run_batch(spark, directory)
        run_streams(spark, directory)
        if state is not None:
            state.log_in(jvm)
            run_restarts(spark, f"{state.uri}/{directory.name}")
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
