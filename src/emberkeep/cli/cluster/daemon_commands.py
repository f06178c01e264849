"""``jobmanager``, ``taskmanager`` and ``prepare``: replace this process with the daemon or task of that name.

``taskmanager stop`` ends a task manager permanently.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated, NoReturn

from cyclopts import App, Parameter

from emberkeep.cli.cluster.commands import DEFAULT_CONFIG
from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, ConfigOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.parameters import CompletedTaskManager

task_manager_app = App(name="taskmanager", help="Run a task manager here, or end one permanently.", sort_key=41)


def jobmanager(*, config: ConfigOptions = DEFAULT_CONFIG) -> int:
    """Run a JobManager in the foreground until SIGTERM or Ctrl-C."""
    _become("jobmanager", config)


@task_manager_app.default
def taskmanager(*, config: ConfigOptions = DEFAULT_CONFIG) -> int:
    """Run a task manager in the foreground until SIGTERM or Ctrl-C.

    Its drivers and executors continue after that.
    The next task manager with the same working directory takes them over.
    """
    _become("taskmanager", config)


@task_manager_app.command(name="stop")
def stop_task_manager(
    task_manager: CompletedTaskManager | None = None,
    /,
    *,
    drain_first: Annotated[str, Parameter(metavar="DURATION")] = "0s",
    no_wait: Annotated[bool, Parameter(negative=())] = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """End a task manager permanently: its work moves elsewhere, its slots are returned, its local state is deleted.

    Parameters
    ----------
    task_manager
        Id of the task manager, as `emberkeep taskmanagers` shows it. Not needed if only one is registered.
    drain_first
        First give its work this long to leave, such as 10min. Nothing new is placed there.
        Executors and streaming jobs move, other jobs end by themselves.
    no_wait
        Return at once, not when the task manager has ended.
    """
    from emberkeep.base.configuration.option_types import duration
    from emberkeep.base.errors import InvalidInput
    from emberkeep.cli.cluster.task_manager_stop import end_task_manager
    from emberkeep.cli.views.asked import with_client_asking

    try:
        seconds = duration(drain_first)
    except ValueError as error:
        raise InvalidInput(f"--drain-first {drain_first}: {error}", field="--drain-first") from None
    with_client_asking(
        cluster.require(),
        lambda client, asked: end_task_manager(client, task_manager, asked, drain=seconds, wait=not no_wait),
    )
    return ExitCode.OK


def prepare() -> int:
    """Build the class-data archive that about halves the start-up time of Spark's JVMs, now.

    Task managers do the same in the background. Use this command in images and installers.
    """
    _replace("prepare", [])


def _become(module: str, config: ConfigOptions) -> NoReturn:
    """Check the settings, then replace this process with the daemon. Raises InvalidInput."""
    config.load()
    options = []
    if config.config_file is not None:
        options += ["--config", str(config.config_file)]
    for definition in config.all_definitions:
        options += ["-D", definition]
    _replace(module, options)


def _replace(module: str, options: list[str]) -> NoReturn:
    arguments = [sys.executable, "-P", "-m", f"emberkeep.daemons.{module}", *options]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, arguments)  # noqa: S606
