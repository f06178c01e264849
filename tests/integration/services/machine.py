"""A machine that consists of namespaces, with a systemd that is its first process."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from tests.integration.commands import Ended
from tests.integration.conditions import until
from tests.integration.hosts import requirements as hosts
from tests.integration.hosts.namespaces import Namespaces

CHECKOUT = Path(__file__).resolve().parents[3]
EMBERKEEP = Path(sys.executable).with_name("emberkeep")
_PROGRAMS = (CHECKOUT, Path(sys.prefix), Path(sys.base_prefix))
_PRIVATE = ("/root", "/tmp")  # each machine has its own
_BOOT = Path(__file__).with_name("boot.sh")
_KINDS = ("net", "uts", "mount", "pid", "ipc", "cgroup")
_TOOLS = ("ip", "unshare", "nsenter", "setpriv", "runuser", "systemctl", "systemd-sysusers", "systemd-tmpfiles")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
_SECONDS = 120.0
# What services wait for by default, and what a systemd needs to be up.
_TARGETS = ("machine", "sysinit", "basic", "shutdown", "network-online", "remote-fs", "time-sync", "multi-user")
_TARGET = "[Unit]\nDefaultDependencies=no\n"


def why_not() -> str:
    """Return why no such machine can be had here; "" if there may be one."""
    if os.geteuid() != 0:
        return "a systemd in namespaces needs root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing or not Path("/lib/systemd/systemd").exists():
        return f"a systemd in namespaces needs {', '.join(missing) or 'systemd'}"
    groups = ControlGroups(f"emberkeep-test-{secrets.token_hex(6)}")
    try:
        groups.make()
    except OSError as error:
        return f"a systemd in namespaces needs control groups of its own: {error}"
    finally:
        groups.remove()
    return hosts.why_not()


def hidden_programs() -> list[Path]:
    """Return directories of programs below /root, where services do not see them."""
    return [path for path in _PROGRAMS if path.is_relative_to("/root")]


class Machine:
    """``directory``: for files of the test. The machine sees them, as it sees the programs of this machine.

    ``shared``: a directory that other machines see as well.

    ``groups``: 2 for version 2 of control groups alone; else the machine has the versions that this one has.
    """

    def __init__(self, directory: Path, *, shared: Path | None = None, groups: int = 1) -> None:
        self.directory = directory
        directory.chmod(0o755)
        boot_id = directory / "boot-id"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        units = directory / "units"
        units.mkdir()
        for target in _TARGETS:
            (units / f"{target}.target").write_text(_TARGET)
        self.groups = ControlGroups(f"emberkeep-test-{secrets.token_hex(6)}")
        try:
            self.groups.make()
            seen = filter(None, (*_PROGRAMS, directory, shared))
            hidden = (path for path in seen if any(path.is_relative_to(each) for each in _PRIVATE))
            environment = {
                "MACHINE_UNITS": str(units),
                "MACHINE_VISIBLE": " ".join(map(str, hidden)),
                "MACHINE_GROUPS": str(groups),
                "MACHINE_BOOT": str(boot_id),
            }
            self._namespaces = Namespaces(_KINDS, ("bash", str(_BOOT)), environment, self.groups.enter)
        except BaseException:
            self.groups.remove()
            raise
        until(lambda: self.run("systemctl", "is-active", "machine.target").code == 0, "systemd is up")

    @property
    def pid(self) -> int:
        """Of its first process, as seen from outside."""
        return self._namespaces.pid

    def path(self, path: str) -> Path:
        """Return a path of this machine as one that can be opened from outside."""
        return self._namespaces.root / path.lstrip("/")

    def run(self, *words: str, user: str = "root") -> Ended:
        inside = () if user == "root" else ("runuser", "-u", user, "--")
        done = subprocess.run(
            self._namespaces.enter(*inside, *words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
            cwd="/",
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    def done(self, *words: str, user: str = "root") -> str:
        """Run a command that must succeed; return its output."""
        ended = self.run(*words, user=user)
        assert ended.code == 0, f"{' '.join(words)}: {ended}"
        return ended.out

    def shown(self, unit: str, *properties: str) -> dict[str, str]:
        """What systemd says of a unit."""
        text = self.done("systemctl", "show", unit, *(f"--property={each}" for each in properties))
        return dict(line.split("=", 1) for line in text.splitlines())

    def close(self) -> None:
        """End it, with all its processes."""
        self._namespaces.kill()
        self.groups.remove()


class ControlGroups:
    """A group of this name below each of this process's control groups, for what a machine makes of it.

    ``v2``: the one of version 2; None if that is not mounted.
    """

    def __init__(self, name: str) -> None:
        self.v2: Path | None = None
        self._groups: list[Path] = []
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            root = _CONTROL_GROUPS / (controllers.removeprefix("name=") or "unified")
            if not controllers and not root.is_dir():
                root = _CONTROL_GROUPS  # the only hierarchy
            # A group for processors takes no process until it has some.
            if root.is_dir() and controllers != "cpuset":
                self._groups.append(root / path.lstrip("/") / name)
                self.v2 = self.v2 if controllers else self._groups[-1]

    def make(self) -> None:
        for group in self._groups:
            group.mkdir()

    @property
    def enter(self) -> tuple[str, ...]:
        """Words that run the command after them in these groups."""
        steps = "".join(f"echo $$ >{group}/cgroup.procs && " for group in self._groups)
        return ("sh", "-c", f'{steps}exec "$@"', "sh")

    def remove(self) -> None:
        for group in self._groups:
            until(lambda group=group: _removed(group), f"{group} is empty")  # type: ignore[misc]


def _removed(group: Path) -> bool:
    """Remove a control group and those below it; False while the kernel still counts a process in one."""
    try:
        for place, _, _ in os.walk(group, topdown=False):
            Path(place).rmdir()
    except OSError:
        return False
    return True
