"""What a JVM does while it is warmed."""

from __future__ import annotations

from pathlib import Path

from emberkeep.spark.java import JavaRuntime
from emberkeep.spark.jvm.configuration import with_defaults
from emberkeep.spark.model import DriverSettings
from emberkeep.spark.standby.warm_up import page_and_log

PAGE_AND_LOG = ("spark.ui.", "spark.eventLog.", "spark.org.apache.spark.ui.")
ONLY_SHOWN = {"spark.ui.killEnabled", "spark.ui.showConsoleProgress"}  # they change no code that a start runs


def defaults_of_drivers(event_log: Path) -> dict[str, str]:
    settings = DriverSettings(
        host="127.0.0.1",
        spark_conf={},
        scratch_dir=event_log.parent,
        checkpoint_root="",
        secret=None,
        java=JavaRuntime(None, Path("java"), 17),
        app_name="job",
        driver_memory_mb=1024,
        event_log=event_log,
        ui_key=bytes(32),
    )
    return with_defaults({}, {}, settings)


def test_a_drivers_jvm_serves_the_page_and_writes_the_log_as_a_driver_does_by_default(tmp_path: Path) -> None:
    found = page_and_log(tmp_path / "0", for_driver=True)
    usual = defaults_of_drivers(tmp_path / "0" / "events")
    wanted = {key for key in usual if key.startswith(PAGE_AND_LOG)} - ONLY_SHOWN
    assert found.keys() == wanted
    assert {key for key in wanted if found[key] != usual[key]} == {
        "spark.org.apache.spark.ui.JWSFilter.param.secretKey"
    }
    assert (tmp_path / "0" / "events").is_dir(), "Spark writes no log into a directory that is missing"


def test_an_executors_jvm_has_neither(tmp_path: Path) -> None:
    assert page_and_log(tmp_path, for_driver=False) == {"spark.ui.enabled": "false"}
