"""The `emberkeep` command: its subcommands, and how errors end them.

A command's module is imported when the command is called, so that none of them makes another one slower to start.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import App, Parameter

from emberkeep import __version__
from emberkeep.cli.completion.candidates import COMPLETE, end_soon
from emberkeep.cli.exit_codes import ExitCode, called, ended, exit_code_of
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.script_arguments import UPGRADE_FLAGS, normalise, normalise_after_path

_WITH_SCRIPT = ("run", "submit")
# Where each command is, and its place in the list of all. A command's module is imported once the command is called.
_COMMANDS = {
    "apply": ("jobs.declared:apply", 2),
    "diff": ("jobs.declared:diff", 2),
    "get": ("jobs.declared:get", 2),
    "list": ("jobs.commands:list_jobs", 10),
    "info": ("jobs.commands:info", 11),
    "top": ("operators.top:top", 11),
    "events": ("event_commands:events", 11),
    "logs": ("jobs.log_commands:logs", 12),
    "spark-ui": ("jobs.spark_ui_commands:spark_ui", 12),
    "stop": ("jobs.stop:stop", 12),
    "cancel": ("jobs.commands:cancel", 13),
    "audit": ("audit_commands:audit", 24),
    "doctor": ("operators.doctor:doctor", 25),
    "jobmanager": ("cluster.daemon_commands:jobmanager", 40),
    "prepare": ("cluster.daemon_commands:prepare", 42),
}
_GROUPS = {
    "pipelines": "doors.pipelines:pipelines_app",
    "connect": "doors.connect:connect_app",
    "savepoint": "savepoints.commands:savepoint_app",
    "cluster": "cluster.commands:cluster_app",
    "taskmanagers": "cluster.commands:task_managers_app",
    "node": "nodes.commands:node_app",
    "blob": "blob_commands:blob_app",
    "storage": "cluster.storage_commands:storage_app",
    "config": "config_commands:config_app",
    "dashboards": "monitoring.commands:dashboards_app",
    "security": "cluster.security_commands:security_app",
    "backup": "operators.backup:backup_app",
    "token": "token_commands:token_app",
    "taskmanager": "cluster.daemon_commands:task_manager_app",
    "system": "system.commands:system_app",
}
_AFTER_INSTALL = {
    "bash": "new shells use it if the package bash-completion is installed",
    "zsh": "add its directory to fpath before compinit in ~/.zshrc",
    "fish": "new shells use it",
}


def version() -> int:
    """Show the versions of Emberkeep, Python and Spark."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        spark = installed("pyspark")
    except PackageNotFoundError:
        spark = "not installed"
    python = ".".join(map(str, sys.version_info[:3]))
    print_line(f"emberkeep {__version__}, Python {python}, Spark {spark}")
    return ExitCode.OK


def completion(
    shell: Literal["bash", "zsh", "fish"], /, *, install: Annotated[bool, Parameter(negative=())] = False
) -> int:
    """Print the script with which a shell completes commands, options and their values.

    Jobs, nodes, task managers and savepoints are completed by asking the cluster, if it answers within 2 s.

    Parameters
    ----------
    shell
        The shell that reads the script.
    install
        Write the script to where the shell looks for it, instead of printing it.
    """
    from emberkeep.cli.completion.scripts import completion_script

    app = build_app()
    script = completion_script(app, shell)
    if install:
        place = app.install_completion(shell=shell, add_to_startup=False)
        place.write_text(script, encoding="utf-8")
        say(f"completion is installed in {place}")
        say(_AFTER_INSTALL[shell])
    else:
        sys.stdout.write(script)
    return ExitCode.OK


def build_app() -> App:
    """Return the command and all its subcommands."""
    app = App(
        name="emberkeep",
        help="Keeps PySpark jobs alive and stoppable.",
        version=__version__,
        default_parameter=Parameter(negative=(), show_default=False),
        help_format="plaintext",
        result_action="return_value",
    )
    for order, name in enumerate(_WITH_SCRIPT):
        forms = [f"emberkeep {name} [OPTIONS] {what} [ARGUMENTS...]" for what in ("SCRIPT", "-m MODULE")]
        usage = "Usage: " + "\n       ".join(forms)
        app.command(f"emberkeep.cli.jobs.commands:{name}", name=name, sort_key=order, usage=usage)
    upgrade_forms = [f"emberkeep upgrade JOB [OPTIONS] {what} [ARGUMENTS...]" for what in ("SCRIPT", "-m MODULE")]
    app.command(
        "emberkeep.cli.upgrades.commands:upgrade",
        name="upgrade",
        sort_key=3,
        usage="Usage: " + "\n       ".join([*upgrade_forms, "emberkeep upgrade JOB [--cancel] [--detach]"]),
    )
    for name, (place, order) in _COMMANDS.items():
        app.command(f"emberkeep.cli.{place}", name=name, sort_key=order)
    for name, place in _GROUPS.items():
        app.command(f"emberkeep.cli.{place}", name=name)
    app.command(completion, sort_key=49)
    app.command(version, sort_key=50)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return ended(lambda: _run(words), exit_code_of)


def _run(words: list[str]) -> int:
    if words and words[0] in _WITH_SCRIPT:
        words = [words[0], *normalise(words[1:])]
    elif words[:2] == ["savepoint", "restore"]:
        words = [*words[:2], *normalise_after_path(words[2:])]
    elif words[:2] == ["connect", "exec"]:
        words = [*words[:2], *normalise(words[2:], unsupported={})]
    elif words[:1] == ["upgrade"]:
        words = [words[0], *normalise_after_path(words[1:], UPGRADE_FLAGS)]
    elif words[:1] == [COMPLETE]:
        end_soon()
    app = build_app()
    called_for = words[1:2] if words[:1] == [COMPLETE] and len(words) > 2 else words[:1]  # the last word is incomplete
    if not called_for or called_for[0].startswith("-") or called_for[0] not in app:
        _load_all(app)
    return called(app, words, ExitCode.USAGE)


def _load_all(app: App) -> None:
    """Import all commands, whose modules say what each of them does: help shows it."""
    for name in app:
        app[name]
