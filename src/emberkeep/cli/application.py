"""The `emberkeep` command: its subcommands, and how errors end them.

Commands import what they need when they run, so that help and usage errors appear without delay.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import App, Parameter

from emberkeep import __version__
from emberkeep.cli import audit_commands, blob_commands, config_commands, event_commands, token_commands
from emberkeep.cli.cluster import commands as cluster_commands
from emberkeep.cli.cluster import daemon_commands, security_commands, storage_commands
from emberkeep.cli.completion.candidates import COMPLETE, end_soon
from emberkeep.cli.doors import connect, pipelines
from emberkeep.cli.exit_codes import ExitCode, called, ended, exit_code_of
from emberkeep.cli.jobs import commands as job_commands
from emberkeep.cli.jobs import declared, log_commands, spark_ui_commands
from emberkeep.cli.jobs import stop as job_stop
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.monitoring import commands as monitoring_commands
from emberkeep.cli.nodes import commands as node_commands
from emberkeep.cli.operators import backup, doctor, top
from emberkeep.cli.savepoints import commands as savepoint_commands
from emberkeep.cli.script_arguments import UPGRADE_FLAGS, normalise, normalise_after_path
from emberkeep.cli.system import commands as system_commands
from emberkeep.cli.upgrades import commands as upgrade_commands

_WITH_SCRIPT = ("run", "submit")
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
    app = build_app()
    if install:
        say(f"completion is installed in {app.install_completion(shell=shell, add_to_startup=False)}")
        say(_AFTER_INSTALL[shell])
    else:
        sys.stdout.write(app.generate_completion(shell=shell))
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
        app.command(getattr(job_commands, name), name=name, sort_key=order, usage="Usage: " + "\n       ".join(forms))
    upgrade_forms = [f"emberkeep upgrade JOB [OPTIONS] {what} [ARGUMENTS...]" for what in ("SCRIPT", "-m MODULE")]
    app.command(
        upgrade_commands.upgrade,
        sort_key=3,
        usage="Usage: " + "\n       ".join([*upgrade_forms, "emberkeep upgrade JOB [--cancel] [--detach]"]),
    )
    app.command(declared.apply, sort_key=2)
    app.command(declared.diff, sort_key=2)
    app.command(declared.get, sort_key=2)
    app.command(job_commands.list_jobs, name="list", sort_key=10)
    app.command(job_commands.info, sort_key=11)
    app.command(top.top, sort_key=11)
    app.command(event_commands.events, sort_key=11)
    app.command(log_commands.logs, sort_key=12)
    app.command(spark_ui_commands.spark_ui, sort_key=12)
    app.command(job_stop.stop, sort_key=12)
    app.command(job_commands.cancel, sort_key=13)
    app.command(pipelines.pipelines_app)
    app.command(connect.connect_app)
    app.command(savepoint_commands.savepoint_app)
    app.command(cluster_commands.cluster_app)
    app.command(cluster_commands.task_managers_app)
    app.command(node_commands.node_app)
    app.command(blob_commands.blob_app)
    app.command(storage_commands.storage_app)
    app.command(config_commands.config_app)
    app.command(monitoring_commands.dashboards_app)
    app.command(security_commands.security_app)
    app.command(audit_commands.audit, sort_key=24)
    app.command(doctor.doctor, sort_key=25)
    app.command(backup.backup_app)
    app.command(token_commands.token_app)
    app.command(daemon_commands.jobmanager, sort_key=40)
    app.command(daemon_commands.task_manager_app)
    app.command(daemon_commands.prepare, sort_key=42)
    app.command(system_commands.system_app)
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
    return called(build_app(), words, ExitCode.USAGE)
