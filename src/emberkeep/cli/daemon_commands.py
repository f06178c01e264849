"""``jobmanager``, ``taskmanager`` and ``prepare``: this process becomes the daemon, or the work, of that name."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from emberkeep.cli.cluster_commands import DEFAULT_CONFIG
from emberkeep.cli.cluster_options import ConfigOptions


def jobmanager(*, config: ConfigOptions = DEFAULT_CONFIG) -> int:
    """Run a JobManager in the foreground, until SIGTERM or Ctrl-C."""
    _become("jobmanager", config)


def taskmanager(*, config: ConfigOptions = DEFAULT_CONFIG) -> int:
    """Run a task manager in the foreground, until SIGTERM or Ctrl-C. It ends what it has started."""
    _become("taskmanager", config)


def prepare() -> int:
    """Build the class-data archive that about halves the start of Spark's JVMs; once per installation."""
    _replace("prepare", [])


def _become(module: str, config: ConfigOptions) -> NoReturn:
    """Replace this process by the daemon, after its settings were checked here. Raises InvalidInput."""
    config.load()
    options = []
    if config.config_file is not None:
        options += ["--config", str(config.config_file)]
    for definition in config.all_definitions:
        options += ["-D", definition]
    _replace(module, options)


def _replace(module: str, options: list[str]) -> NoReturn:
    arguments = [sys.executable, "-m", f"emberkeep.daemons.{module}", *options]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, arguments)  # noqa: S606
