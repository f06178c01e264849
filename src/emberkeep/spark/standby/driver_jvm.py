"""A JVM that a standby driver starts and warms before it knows its job."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import structlog

from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.jvm.driver_command import MAIN_CLASS, JvmPlan, jvm_command, plan_jvm
from emberkeep.spark.jvm.driver_jvm import DriverJvm, jvm_environment, make_scratch, start_jvm
from emberkeep.spark.jvm.gateway_connection import Connection
from emberkeep.spark.model import DriverSettings
from emberkeep.spark.standby.identity import COMMAND, LATE_OPTIONS, TEMPORARY, Identity
from emberkeep.spark.standby.memory import release_memory, warm_up_options
from emberkeep.spark.standby.native_calls import NATIVE_OPTIONS
from emberkeep.spark.standby.reflection import Reflection, failures_of_py4j
from emberkeep.spark.standby.reset import forget_objects, reset_login, reset_warehouse
from emberkeep.spark.standby.warming import StateWarmUp, warm

log = structlog.get_logger(__name__)

_STOP_SECONDS = 5.0
_TAKE_SECONDS = 5.0  # usually a tenth of a second
_SUBMIT_TIME = "spark.app.submitTime"


class StandbyJvm:
    """A warmed JVM for one driver. ``why_cold``: why the driver could not use it; "" before it was asked, or if it did.

    Owned by the thread that runs the driver's script.
    """

    def __init__(self, jvm: DriverJvm, plan: JvmPlan) -> None:
        self._jvm: DriverJvm | None = jvm
        self._plan = plan
        self._identity = Identity(jvm.gateway)
        self.why_cold = ""

    @property
    def reflection(self) -> Reflection:
        return self._identity.reflection

    @property
    def pid(self) -> int | None:
        """Process id of the JVM; None once the JVM has been ended because it did not fit."""
        return None if self._jvm is None else self._jvm.pid

    def take(self, plan: JvmPlan, settings: DriverSettings) -> DriverJvm | None:
        """Give the JVM the identity of the job; return None, and end the JVM, if that is not possible."""
        jvm, self._jvm = self._jvm, None
        if jvm is None:
            return None  # the script's next JVM, after its first one has ended
        differences = self._plan.shape.differences(plan.shape)
        self.why_cold = f"the script needs {', '.join(differences)}" if differences else ""
        if not self.why_cold:
            self.why_cold = self._try_to_become(jvm, plan, settings)
        if self.why_cold:
            log.info("the driver starts a cold JVM", reason=self.why_cold)
            jvm.stop(_STOP_SECONDS)
            return None
        return jvm

    def _try_to_become(self, jvm: DriverJvm, plan: JvmPlan, settings: DriverSettings) -> str:
        """Give the JVM the job's identity; return why that failed, or "". A JVM that hangs is killed."""
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            jvm.kill()

        watch = threading.Timer(_TAKE_SECONDS, give_up)
        watch.daemon = True
        watch.start()
        problem = ""
        try:
            with failures_of_py4j():
                self._become(jvm, plan, settings)
        except (SparkInternalsMissing, OSError) as error:
            problem = f"its warm JVM has failed: {error}"
        finally:
            watch.cancel()
            watch.join()  # it may have begun to kill the JVM
        return "its warm JVM answered too late" if is_late.is_set() else problem

    def _become(self, jvm: DriverJvm, plan: JvmPlan, settings: DriverSettings) -> None:
        make_scratch(settings)
        identity = self._identity
        # The shell that starts other drivers' JVMs sets PWD.
        identity.set_environment({**jvm_environment(os.environ, plan, settings), "PWD": str(Path.cwd())})
        identity.set_directory(Path.cwd())
        before = {**self._plan.defaults, **self._plan.conf}
        after = {**plan.defaults, **plan.conf, _SUBMIT_TIME: str(time.time_ns() // 1_000_000)}
        identity.change_properties(before.keys() - after.keys(), {**_of_spark(after), **_of_java(plan, settings)})
        identity.append_to_class_path(plan.jars)
        reset_login(identity.reflection)
        reset_warehouse(identity.reflection)


def start_standby_jvm(settings: DriverSettings, warm_up: Path, state: StateWarmUp) -> StandbyJvm:
    """Start and warm a JVM. ``warm_up``: directory for the warm-up's files. ``state``: which gateway it uses.

    ``settings``: the settings of a job that sets none itself. Blocks for as long as the warm-up takes. Raises
    StandbyFailed, JvmStartFailed, SparkInternalsMissing, OSError.
    """
    plan = plan_jvm({}, settings, os.environ)
    options = (*NATIVE_OPTIONS, *LATE_OPTIONS, *warm_up_options(plan.shape.heap_mb))
    jvm = start_jvm(plan, settings, options)
    try:
        parameters = jvm.gateway.gateway_parameters
        warm(Connection(parameters.port, parameters.auth_token), warm_up, os.environ, state, for_driver=True)
        forget_objects(jvm.gateway)
        standby = StandbyJvm(jvm, plan)
        release_memory(standby.reflection)
    except BaseException:
        jvm.stop(_STOP_SECONDS)
        raise
    return standby


def _of_java(plan: JvmPlan, settings: DriverSettings) -> dict[str, str]:
    """Return the properties that Java derives from the command line of a JVM that is started for the job."""
    command = jvm_command(plan, settings)
    return {TEMPORARY: str(settings.scratch_dir / "tmp"), COMMAND: " ".join(command[command.index(MAIN_CLASS) :])}


def _of_spark(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that SparkSubmit makes system properties: it ignores all others."""
    return {key: value for key, value in settings.items() if key.startswith("spark.")}
