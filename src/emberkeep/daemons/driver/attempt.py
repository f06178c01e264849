"""One attempt of a job in its driver process.

The script runs in the main thread, as ``python script.py`` would run it; the JobMaster runs on another thread. The
script starts only after the JobManager has accepted the attempt, so a superseded attempt never runs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import structlog

from emberkeep.adapters.logging_setup import set_up_logging_beside_user_code
from emberkeep.adapters.savepoints.store import open_savepoint_objects
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.processes.standard_streams import say
from emberkeep.daemons.driver.end import explained, hand_over, reason_of_own_group, store_outcome
from emberkeep.daemons.driver.link import JobMasterThread
from emberkeep.daemons.driver.outcomes import ENDED_BEFORE, cannot_start, not_started, outcome_of
from emberkeep.daemons.driver.program import DriverProgram, find_program
from emberkeep.daemons.driver.secret_text import SecretText
from emberkeep.daemons.driver.settings import JobSettings
from emberkeep.daemons.driver.spark.bridge import SparkBridge
from emberkeep.daemons.driver.storage import require_checkpoints, require_own_place
from emberkeep.daemons.records.driver_spec import DriverSpec, read_spec
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.lifecycle.errors import UserFunctionFailed
from emberkeep.spark import model as spark_model
from emberkeep.spark.driver_runtime import DriverRuntime, install
from emberkeep.spark.functions.user_functions import DriverFunctions
from emberkeep.spark.jvm.driver_command import JvmPlan
from emberkeep.spark.jvm.driver_jvm import DriverJvm
from emberkeep.spark.script.cancellation import Cancelled, raise_no_more, raise_on_sigterm
from emberkeep.spark.script.immediate_exit import immediate_exits
from emberkeep.spark.script.open_files import finish_files
from emberkeep.spark.script.runner import CANCELLED, OutcomeKind, ScriptOutcome
from emberkeep.spark.standby.driver_jvm import StandbyJvm

log = structlog.get_logger(__name__)


def run_attempt(arguments: list[str], standby: StandbyJvm | None = None) -> int:
    """Run the attempt in the record at ``arguments[0]``. Return the script's exit code.

    ``standby``: a warm JVM for the script, if this process was started before its job.
    """
    spec = read_spec(Path(arguments[0]))
    configuration = Configuration().with_texts(spec.options, "task manager").with_recorded(spec.graph.options, "job")
    set_up_logging_beside_user_code(
        "driver", Path(spec.logs), configuration, job=spec.graph.job_id, attempt=spec.attempt
    )
    return _Driver(spec, configuration, standby).run()


class _Driver:
    def __init__(self, spec: DriverSpec, configuration: Configuration, standby: StandbyJvm | None = None) -> None:
        self._spec = spec
        self._standby = standby
        self._secrets = SecretText(os.environ.get(name, "") for name in spec.graph.secrets)
        self._failure: AttemptOutcome | None = None
        # Guards the next field, and the writes of outcomes. A signal handler of the script may interrupt its holder.
        self._handing_over = threading.RLock()
        self._ender: int | None = None  # the thread that ends this process, once there is one
        self._told_to_end = False
        self._functions: DriverFunctions | None = None
        self._program: DriverProgram  # assigned before the script starts
        self._bridge = SparkBridge(configuration, self._failed)
        self._settings = JobSettings(spec, configuration, self._bridge.ui_key)
        self._job_master = JobMasterThread(spec, configuration, self._bridge)

    def run(self) -> int:
        raise_on_sigterm(self._told)
        os.environ.update(self._settings.environment())
        try:
            self._job_master.start()
            require_checkpoints(self._spec)
            self._program = program = find_program(self._spec, Path.cwd())
            runtime = install(
                self._settings.of_spark(program.folders),
                self,
                self._job_master.survey_local_state,
                self._job_master.lease.wait,
                open_savepoint_objects,
                partial(require_own_place, self._spec),
                self._take_jvm,
            )
        except EmberkeepError as error:
            raise_no_more()
            say(f"emberkeep: {error}")
            return self._end(not_started(error))
        except Cancelled:
            raise_no_more()
            return self._end(self._failure or ENDED_BEFORE)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary: no script can run after any error here
            raise_no_more()
            traceback.print_exception(error)
            return self._end(cannot_start(error))
        self._bridge.functions = self._functions = runtime.functions
        self._bridge.runtime = runtime
        if self._told_to_end or self._failure is not None:
            runtime.functions.ended_badly()
        with immediate_exits(lambda code: self._leave(code, runtime)):
            script = self._end_sources(program.run(self._spec.graph.arguments, self._body_ended), runtime)
            raise_no_more()
            code = self._end(self._outcome_after(script, runtime))
            runtime.end_jvm()
        return code

    def _take_jvm(self, plan: JvmPlan, settings: spark_model.DriverSettings) -> DriverJvm | None:
        return None if self._standby is None else self._standby.take(plan, settings)

    def application_started(self, application: spark_model.SparkApplication) -> None:
        self._job_master.application_started(self._settings.application(application, self._program))

    def application_stopping(self, app_id: str) -> None:
        del app_id
        self._job_master.application_stopping()

    def application_stopped(self, app_id: str) -> None:
        del app_id
        self._job_master.application_stopped()

    def _told(self) -> None:
        """Record a SIGTERM. Runs in the signal handler: no lock, no I/O."""
        self._told_to_end = True
        if self._functions is not None:
            self._functions.ended_badly()

    def _body_ended(self, script: ScriptOutcome) -> None:
        if script.exit_code != 0 and self._functions is not None:
            self._functions.ended_badly()

    def _failed(self, outcome: AttemptOutcome) -> None:
        """Note a failure that the script does not see. What comes after the attempt's end does not change its outcome.

        Any thread may call this.
        """
        with self._handing_over:
            if self._ender is not None:
                log.warning("a failure after the attempt's end is ignored", reason=outcome.message)
                return
            self._failure = outcome = self._secrets.without(outcome).shortened()
            if self._functions is not None:
                self._functions.ended_badly()
            store_outcome(self._spec, outcome)

    def _outcome_after(self, script: ScriptOutcome, runtime: DriverRuntime) -> AttemptOutcome:
        """Close functions, stop Spark and write open files; return the outcome of the script.

        A failure of these never hides the outcome. For example, this process may be allowed no further thread.
        """
        with _logged("cannot close the functions"):
            runtime.functions.close()
        outcome = self._outcome(script, runtime)
        with _logged("cannot tell why the kernel has ended a process"):
            outcome = explained(outcome, reason_of_own_group(os.environ))
        has_stopped = False
        with _logged("cannot stop Spark"):
            has_stopped = runtime.stop_spark()
        if not has_stopped:
            with _logged("cannot end the JVM"):
                runtime.end_jvm()  # the application may still write, so the outcome waits for the end of its JVM
        with _logged("cannot write the files that the script has left open"):
            finish_files()
        return outcome

    def _leave(self, exit_code: int, runtime: DriverRuntime) -> None:
        """Hand over the outcome of a script that calls ``os._exit``. The caller must end this process. Any thread.

        Return at once if a signal handler of the script calls this in the thread that ends this process already.
        """
        if self._ender == threading.get_ident():
            return
        if threading.current_thread() is threading.main_thread():
            raise_no_more()
        self._begin_end()
        script = ScriptOutcome(exit_code, OutcomeKind.EXITED)
        outcome = explained(self._outcome(self._unless_told(script, runtime), runtime), reason_of_own_group(os.environ))
        runtime.end_jvm()
        self._finish_end(outcome)

    def _end(self, outcome: AttemptOutcome) -> int:
        self._begin_end()
        self._finish_end(outcome)
        return outcome.exit_code

    def _begin_end(self) -> None:
        """Return for one caller only: the others wait until it ends this process."""
        with self._handing_over:
            is_first = self._ender is None
            if is_first:
                self._ender = threading.get_ident()
        if not is_first:
            threading.Event().wait()

    def _finish_end(self, outcome: AttemptOutcome) -> None:
        outcome = self._secrets.without(outcome).shortened()
        hand_over(self._spec, outcome, self._job_master)
        self._job_master.stop()

    def _end_sources(self, script: ScriptOutcome, runtime: DriverRuntime) -> ScriptOutcome:
        """Report to the user functions that their sources have ended, unless the script failed or was asked to end.

        Return the script's outcome: a failure if its functions fail at the end of their sources.
        """
        if script.exit_code != 0:
            return script
        try:
            runtime.functions.sources_ended()
        except UserFunctionFailed as error:
            say(f"emberkeep: {error}")
            return ScriptOutcome(1, OutcomeKind.RAISED, type(error).__name__, str(error))
        except Exception as error:  # noqa: BLE001 - what Spark raises as the queries are stopped
            traceback.print_exception(error)
            return ScriptOutcome(1, OutcomeKind.RAISED, type(error).__name__, str(error), traceback.format_exc())
        except Cancelled:
            return CANCELLED
        return self._unless_told(script, runtime)

    def _unless_told(self, script: ScriptOutcome, runtime: DriverRuntime) -> ScriptOutcome:
        """Return the script's outcome. One whose own handler ended it cleanly was still asked to end: CANCELLED."""
        return CANCELLED if self._told_to_end and not runtime.procedures.ended_on_request() else script

    def _outcome(self, script: ScriptOutcome, runtime: DriverRuntime) -> AttemptOutcome:
        if self._failure is not None:
            return self._failure
        return outcome_of(script, self._spec.attempt, runtime.jvm_died())


@contextlib.contextmanager
def _logged(what: str) -> Iterator[None]:
    """Log an error of a step after which the end of the attempt goes on."""
    try:
        yield
    except Exception:
        log.exception(what)
