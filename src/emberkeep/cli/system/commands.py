"""``system install``: the files that make daemons services of systemd."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from emberkeep.base.errors import InvalidInput
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say

if TYPE_CHECKING:
    from emberkeep.cli.system.units import Service

system_app = App(name="system", help="Run Emberkeep as a service of the operating system.", sort_key=43)

_PATH = re.compile(r"/[A-Za-z0-9._/+-]*[A-Za-z0-9._+-]")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
# Directories of the operating system and of others: they keep their owner and mode.
_SHARED = frozenset(
    {
        *("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/media", "/mnt", "/opt", "/proc", "/root"),
        *("/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/etc/conf.d", "/etc/default", "/etc/opt"),  # noqa: S108
        *("/etc/sysconfig", "/etc/systemd", "/run/user", "/usr/bin", "/usr/etc", "/usr/lib", "/usr/local"),
        *("/usr/local/bin", "/usr/local/etc", "/usr/local/lib", "/usr/local/share", "/usr/share", "/var/cache"),
        *("/var/lib", "/var/local", "/var/log", "/var/opt", "/var/spool", "/var/tmp"),  # noqa: S108
    }
)


Role = Literal["all", "jobmanager", "taskmanager"]


@system_app.command
def install(
    *,
    role: Role = "all",
    root: Annotated[Path, Parameter(metavar="DIR")] = Path("/"),
    executable: Annotated[str | None, Parameter(metavar="PATH")] = None,
    config: Annotated[str, Parameter(metavar="PATH")] = "/etc/emberkeep/config.yaml",
    state_dir: Annotated[str, Parameter(name="--state-dir", metavar="PATH")] = "/var/lib/emberkeep",
    writable: Annotated[tuple[str, ...], Parameter(name="--writable", metavar="PATH")] = (),
    user: Annotated[str, Parameter(metavar="NAME")] = "emberkeep",
    dry_run: Annotated[bool, Parameter(name="--dry-run")] = False,
    replace: Annotated[bool, Parameter(name="--replace")] = False,
) -> int:
    """Write systemd units, and the files that create their user and directories. Start nothing.

    Parameters
    ----------
    role
        Which daemons this machine runs.
    root
        Write below this directory, for packages and images. The files name paths without it.
    executable
        The command that the units start. Default: this one.
    config
        Configuration file of the daemons. It is written only if there is none.
    state_dir
        State directory of the daemons.
    writable
        A further directory that the JobManager writes to: shared storage, BLOBs, savepoints; may be repeated.
    user
        The operating system's user of daemons and jobs.
    dry_run
        Only print the files.
    replace
        Replace files that differ. The configuration file is kept.
    """
    from emberkeep.cli.system import files
    from emberkeep.cli.system.units import Daemon

    service = _service(_this_command() if executable is None else executable, config, user, state_dir, writable)
    daemons = [daemon for daemon in Daemon if role in ("all", daemon.value)]
    wanted = files.files_of(service, daemons)
    if dry_run:
        for file in wanted:
            print_line(f"### {file.path}")
            print_line(file.text)
        return ExitCode.OK
    for name, what in files.install(root, wanted, replace=replace).items():
        print_line(f"{what:<9} {name}")
    units = " ".join(daemon.unit for daemon in daemons)
    say("next: systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload")
    say(f"then: emberkeep doctor --config {config} (as {user}), and systemctl enable --now {units}")
    return ExitCode.OK


def _service(executable: str, config: str, user: str, state_dir: str, writable: tuple[str, ...]) -> Service:
    """Return the service of these options, with this environment's Java. Raises InvalidInput."""
    from emberkeep.cli.system.units import Service

    java_home = os.environ.get("JAVA_HOME", "")
    for option, path in (
        ("--executable", executable),
        ("--config", config),
        ("--state-dir", state_dir),
        *(("--writable", path) for path in writable),
        *((("JAVA_HOME", java_home),) if java_home else ()),
    ):
        _require_path(option, path)
    for option, directory in (("--config", os.path.dirname(config)), ("--state-dir", state_dir)):  # noqa: PTH120
        _require_own_directory(option, directory)
    if not _USER.fullmatch(user):
        raise InvalidInput(
            f"--user: {user[:80]!r} is not a name of a user", field="--user", hint="use lower-case letters and digits"
        )
    return Service(
        executable=executable,
        config=config,
        user=user,
        state=state_dir,
        writable=writable,
        java_home=java_home,
    )


def _this_command() -> str:
    """Return the path of the command that is running. Raises InvalidInput if it is a module, as with ``python -m``."""
    path = Path(sys.argv[0]).absolute()
    if not os.access(path, os.X_OK):
        hint = "name the command emberkeep, with its whole path"
        raise InvalidInput(f"--executable is missing: {path} is no command", field="--executable", hint=hint)
    return str(path)


def _require_path(option: str, path: str) -> None:
    """Raise InvalidInput unless the path may be written into a unit as it is."""
    if not _PATH.fullmatch(path):
        raise InvalidInput(
            f"{option}: {path[:200]!r} is not an absolute path of letters, digits and '.', '_', '+', '-'",
            field=option,
            hint="systemd would read other characters differently",
        )


def _require_own_directory(option: str, directory: str) -> None:
    """Raise InvalidInput if the directory is not Emberkeep's alone, since systemd-tmpfiles changes its owner and mode.

    In ``/etc``, for example, no other user could read the names of users any more.
    """
    real = os.path.normpath(f"/{directory.lstrip('/')}")
    if real in _SHARED:
        raise InvalidInput(
            f"{option}: {real} is a directory of the operating system, and this one must be Emberkeep's alone",
            field=option,
            hint="choose a directory below it, such as /etc/emberkeep or /var/lib/emberkeep",
        )
