"""``backup create|verify|restore``: keep what a cluster needs to continue elsewhere, and continue there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import App, Parameter

from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.processes.answers import answer_in
from emberkeep.cli.cluster_options import ConfigOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say, say_error
from emberkeep.cli.parameters import PlainOutput
from emberkeep.cli.tables import OutputFormat, print_data, print_fields, print_table

if TYPE_CHECKING:
    from emberkeep.backups.continuation import PlannedJob, RestorePlan
    from emberkeep.backups.model import BackupManifest

T = TypeVar("T")

_DEFAULT_CONFIG = ConfigOptions()

BackupPath = Annotated[Path, Parameter(help="Directory of the backup, or its file if the name ends in .tar.")]

backup_app = App(name="backup", help="Back up a cluster while it runs, and restore it elsewhere.", sort_key=26)


@backup_app.command
def create(
    backup: BackupPath,
    /,
    *,
    with_keys: Annotated[bool, Parameter(negative=())] = False,
    output: PlainOutput = OutputFormat.TABLE,
    config: ConfigOptions = _DEFAULT_CONFIG,
) -> int:
    """Write a backup of the cluster: its job store, and the files of jobs that have to be recovered.

    Run it as the user of the JobManager and with its settings: on its machine, or with ZooKeeper where the storage is.
    The cluster may run. Checkpoints and savepoints are not part of a backup.
    Exit code 1 if the backup lacks something of a job, because the cluster lacks it.

    Parameters
    ----------
    with_keys
        Include the cluster's token and the key of its CA. Whoever reads the backup then controls the cluster.
    """
    from emberkeep.backups.model import BackupManifest

    made = _result(config, ("create", str(backup), *(["--with-keys"] if with_keys else [])), BackupManifest)
    if output.is_data:
        print_data(made, output)
    else:
        _print_manifest(backup, made)
    return ExitCode.FAILED if made.lacks else ExitCode.OK


@backup_app.command
def verify(
    backup: BackupPath, /, *, output: PlainOutput = OutputFormat.TABLE, config: ConfigOptions = _DEFAULT_CONFIG
) -> int:
    """Check each file of a backup, and who has made it. Exit code 1 if it is damaged."""
    from emberkeep.backups.model import Verification

    found = _result(config, ("verify", str(backup)), Verification)
    if output.is_data:
        print_data(found, output)
    else:
        for damage in found.damages:
            print_line(f"DAMAGED  {damage.member}: {damage.what}")
        if found.sealed is False:
            print_line("DAMAGED  manifest.seal: the backup was not made with this cluster's token")
        if found.is_sound and found.manifest is not None:
            _print_manifest(backup, found.manifest)
            if found.sealed is None:
                say("who made it was not checked: there is no token here")
            say("the backup is sound")
        elif not found.is_sound:
            say_error(f"{backup} is damaged", "use another backup")
    return ExitCode.OK if found.is_sound else ExitCode.FAILED


@backup_app.command
def restore(
    backup: BackupPath,
    /,
    *,
    yes: Annotated[bool, Parameter(name="--yes")] = False,
    dry_run: Annotated[bool, Parameter(name="--dry-run")] = False,
    force: Annotated[bool, Parameter(name="--force")] = False,
    new_token: Annotated[bool, Parameter(name="--new-token")] = False,
    output: PlainOutput = OutputFormat.TABLE,
    config: ConfigOptions = _DEFAULT_CONFIG,
) -> int:
    """Make a new cluster's job store and files from a backup. Start the cluster afterwards.

    All processes of the old cluster must have ended, or must never again reach the storage.
    Nothing else prevents that two drivers of a job write.
    What would be done is shown first.
    A restore that was interrupted continues when it is run again.

    Parameters
    ----------
    yes
        Do not ask for confirmation.
    dry_run
        Only show what would be done.
    force
        Restore although something listens at an address of the old cluster.
    new_token
        The token is lost as well: trust the backup without checking who has made it.
    """
    from emberkeep.backups.continuation import RestorePlan

    flags = [name for name, given in (("--force", force), ("--new-token", new_token)) if given]
    plan = _result(config, ("restore", str(backup), *flags), RestorePlan)
    if not output.is_data:
        _print_plan(plan)
    if not dry_run:
        if not yes:
            _confirm()
        plan = _result(config, ("restore", str(backup), "--apply", *flags), RestorePlan)
    if output.is_data:
        print_data(plan, output)
    elif plan.done:
        say("restored: start the JobManager and the task managers with the same settings")
    return ExitCode.OK


def _confirm() -> None:
    """Ask for confirmation on the terminal. Raises InvalidInput without a terminal, or unless the user types yes."""
    if sys.stdin.isatty():
        say("have all processes of the old cluster ended, and can none of them come back? type yes to restore")
        if sys.stdin.readline().strip() == "yes":
            return
    raise InvalidInput("nothing is restored", field="--yes", hint="--yes restores without asking")


def _result(config: ConfigOptions, action: tuple[str, ...], kind: type[T]) -> T:
    """Return the result of a process that uses stores as a daemon does. Raises InvalidInput, Fatal."""
    import msgspec

    arguments = [sys.executable, "-P", "-m", "emberkeep.daemons.backups", *action]
    file = config.effective_config_file()
    arguments += ["--config", str(file)] if file is not None else []
    for definition in config.all_definitions:
        arguments += ["-D", definition]
    done = subprocess.run(arguments, capture_output=True, check=False)
    if done.returncode == 0:
        return msgspec.json.decode(answer_in(done.stdout), type=kind)
    lines = done.stderr.decode("utf-8", "replace").rstrip().splitlines()
    try:
        told: dict[str, Any] = msgspec.json.decode(lines[-1] if lines else "")
        message, hint = told["message"], told["hint"]
    except (msgspec.MsgspecError, KeyError, TypeError):
        text = lines[-1] if lines else f"exit code {done.returncode}"
        raise Fatal(f"the backup's process has failed: {text}", hint="please report it") from None
    if done.returncode == ExitCode.USAGE:
        raise InvalidInput(message, hint=hint)
    raise Fatal(message, hint=hint)


def _print_manifest(path: Path, made: BackupManifest) -> None:
    from emberkeep.cli.wording import byte_count, counted, timestamp

    keys = "included: whoever reads the backup controls the cluster" if made.has_keys else "not included"
    print_fields(
        [
            ("Backup", str(path)),
            ("Made", timestamp(made.made_ms)),
            ("Cluster", f"{made.cluster_id} ({made.store.value}), epoch {made.epoch}"),
            (
                "Content",
                f"{counted(len(made.jobs), 'job')}, {counted(len(made.members), 'file')}, {byte_count(made.size)}",
            ),
            ("Keys", keys),
        ]
    )
    for what in made.lacks:
        say_error(f"the backup lacks something of {what}", None)


def _print_plan(plan: RestorePlan) -> None:
    for number, step in enumerate(plan.steps, 1):
        print_line(f"{number}. {step}")
    if plan.jobs:
        print_table(
            ("JOB ID", "NAME", "NEXT ATTEMPT", "CONTINUES FROM"),
            [(job.job_id, job.name, str(job.attempt), _source(job)) for job in plan.jobs],
        )
    for job in plan.jobs:
        for note in job.continuation.notes:
            say_error(f"job {job.name or job.job_id}: {note}", None)
    for warning in plan.warnings:
        say_error(warning, None)


def _source(job: PlannedJob) -> str:
    from emberkeep.backups.continuation import From

    found = job.continuation
    match found.start:
        case From.BEGINNING:
            return "its beginning: it has committed no batch"
        case From.CHECKPOINTS:
            batches = ", ".join(f"batch {batch}" for _, batch in sorted(found.batches.items()))
            return f"its checkpoints ({batches})" if batches else "its checkpoints"
        case From.SAVEPOINT:
            return f"savepoint {found.savepoint}"
        case From.NOTHING:
            return "nothing: see below"
