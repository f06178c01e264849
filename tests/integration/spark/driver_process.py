"""A driver process as the tests need it: our runtime around a script, executors started directly, no cluster.

    python driver_process.py <settings.json> <script> [arguments…]

The outcome and all that the listener was told go to ``report.json`` in the scratch directory.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from emberkeep.lifecycle.model import Procedure
from emberkeep.spark.driver_runtime import DriverSettings, JobFiles, SparkApplication, install
from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.executor_command import ExecutorLaunch, executor_command
from emberkeep.spark.script.cancellation import raise_on_sigterm
from emberkeep.spark.script.runner import ScriptOutcome, run_module, run_script


class DirectExecutors:
    """Starts one executor per host for each application, and ends them all."""

    def __init__(
        self, scratch: Path, hosts: list[str], java: Path, class_archive: Path | None, files: JobFiles
    ) -> None:
        self._class_archive = class_archive
        self._files = files
        self.scratch = scratch
        self._hosts = hosts
        self._java = java
        self.processes: list[subprocess.Popen[bytes]] = []
        self.secret: str | None = None  # another than the application's
        self.way_to_driver: Callable[[str], str] = str  # from the application's URL to the one that executors use
        self.events: list[dict[str, Any]] = []

    def application_started(self, application: SparkApplication) -> None:
        self.events.append({"event": "started", **dataclasses.asdict(application)})
        threading.Thread(target=self._start_all, args=(application,), daemon=True).start()

    def application_stopping(self, app_id: str) -> None:
        self.events.append({"event": "stopping", "app_id": app_id})

    def application_stopped(self, app_id: str) -> None:
        self.events.append({"event": "stopped", "app_id": app_id})

    def _start_all(self, application: SparkApplication) -> None:
        for host in self._hosts:
            number = str(len(self.processes))
            directory = self.scratch / f"executor-{number}"
            work = directory / "work"
            work.mkdir(parents=True)
            for name, path in {**self._files.files, **self._files.py_files}.items():
                (work / name).symlink_to(path)
            argv, environment = executor_command(
                ExecutorLaunch(
                    driver_url=self.way_to_driver(application.driver_url),
                    executor_id=number,
                    host=host,
                    cores=application.executor_cores,
                    heap_mb=512,
                    app_id=application.app_id,
                    java=self._java,
                    java_options=application.executor_java_options,
                    extra_class_path=application.extra_class_path,
                    python=sys.executable,
                    environ={**os.environ, **application.executor_env},
                    work_dir=work,
                    local_dir=directory / "local",
                    temporary_dir=directory / "tmp",
                    auth_secret=self.secret or application.auth_secret,
                    jars=self._files.jars,
                    jars_first=application.user_class_path_first,
                    class_archive=self._class_archive,
                )
            )
            with (directory / "log").open("wb") as log:
                self.processes.append(
                    subprocess.Popen(argv, env=environment, cwd=work, stderr=log, stdout=log, start_new_session=True)
                )

    def end_all(self) -> None:
        for process in self.processes:
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _paths(given: dict[str, str]) -> dict[str, Path]:
    return {name: Path(path) for name, path in given.items()}


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    scratch = Path(given["scratch_dir"])
    hosts = given.pop("hosts")
    module = given.pop("module", False)
    java = find_java(os.environ)
    archive = Path(given.pop("class_archive"))
    files = JobFiles(
        py_files=_paths(given.pop("py_files", {})),
        files=_paths(given.pop("files", {})),
        jars=tuple(map(Path, given.pop("jars", ()))),
    )
    asked = given.pop("asked_before", None)
    given["asked_before"] = None if asked is None else Procedure(asked)
    own = {"scratch_dir": scratch, "java": java, "class_archive": archive, "job_files": files}
    executors = DirectExecutors(scratch, hosts, java.executable, archive, files)
    settings = DriverSettings(**{**given, **own})
    runtime = install(settings, executors)
    # Scripts of the tests look at the runtime from another side than scripts of users can.
    sys.modules["runtime_under_test"] = type(sys)("runtime_under_test")
    sys.modules["runtime_under_test"].__dict__.update(runtime=runtime, executors=executors)
    raise_on_sigterm(runtime.functions.ended_badly)
    run = run_module if module else run_script

    def ended(body: ScriptOutcome) -> None:
        if body.exit_code != 0:
            runtime.functions.ended_badly()

    outcome = run(sys.argv[2], sys.argv[3:], ended)
    if outcome.exit_code == 0:
        runtime.functions.sources_ended()
    runtime.functions.close()
    died = runtime.jvm_died()
    pid = runtime.jvm_pid()
    runtime.stop_spark()
    runtime.end_jvm()
    executors.end_all()
    report = {
        **dataclasses.asdict(outcome),
        "kind": outcome.kind.value,
        "jvm_died": None if died is None else dataclasses.asdict(died),
        "jvm_pid": pid,
        "events": executors.events,
    }
    (scratch / "report.json").write_text(json.dumps(report), encoding="utf-8")
    os._exit(outcome.exit_code)


if __name__ == "__main__":
    main()
