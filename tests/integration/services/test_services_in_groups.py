"""A real systemd starts a task manager's service again while a process goes on in a control group with limits.

That is the rule of version 2 of control groups, which any controller shows. Where the kernel has given memory and cpu
to version 1, hugetlb is left, so a small program stands for the task manager and uses that.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.adapters.cgroups.files import KernelFiles, processes_in
from emberkeep.cli.system.units import Daemon, Service, unit_text
from tests.integration.conditions import until
from tests.integration.services.machine import CHECKOUT, ControlGroups, Machine, why_not

pytestmark = [pytest.mark.integration, pytest.mark.long]

CONTROLLER = "hugetlb"
FILES = KernelFiles()
# Its arguments: the checkout's sources, a file that it tells its starts, and the controller.
MANAGER = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from emberkeep.adapters.cgroups import version2
from emberkeep.adapters.cgroups.files import KernelFiles, processes_in
from emberkeep.adapters.cgroups.mounts import groups_of

version2.CONTROLLERS = frozenset({sys.argv[3]})
files = KernelFiles()
place = version2.enable_below(groups_of("self").v2, files) / "emberkeep-place"
files.make(place)
version2.enable_controllers(place, files)
files.make(place / "executor")
if not processes_in(files, place / "executor"):
    executor = subprocess.Popen(["sleep", "3600"], start_new_session=True)
    version2.GroupV2(place / "executor", files).join(executor.pid)
with open(sys.argv[2], "a") as told:
    print("started", *processes_in(files, place / "executor"), file=told)
time.sleep(3600)
"""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with version 2 of control groups, whose services may use the controller."""
    if reason := why_not():
        pytest.skip(reason)
    own = ControlGroups("not-made").v2
    if own is None:
        pytest.skip("version 2 of control groups is not mounted")
    with _controller_in(own.parent):
        machine = Machine(tmp_path, groups=2)
        try:
            _give_controller(machine)
            yield machine
        finally:
            machine.close()


@contextlib.contextmanager
def _controller_in(group: Path) -> Iterator[None]:
    """Let the groups below have the controller."""
    has_it = CONTROLLER in FILES.read(group / "cgroup.subtree_control").split()
    if not has_it:
        try:
            FILES.write(group / "cgroup.subtree_control", f"+{CONTROLLER}")
        except OSError as error:
            pytest.skip(f"no controller of version 2 can be had: {error}")
    try:
        yield
    finally:
        if not has_it:
            with contextlib.suppress(OSError):  # another test uses it
                FILES.write(group / "cgroup.subtree_control", f"-{CONTROLLER}")


def _give_controller(machine: Machine) -> None:
    """Give the controller to the machine's services."""
    root = machine.groups.v2
    assert root is not None
    machine.path("/etc/systemd/system/other.service").write_text("[Service]\nExecStart=/bin/sleep 3600\n")
    machine.done("systemctl", "start", "other")  # system.slice exists from now on
    for pid in processes_in(FILES, root):  # the parents of the machine's first process
        with contextlib.suppress(ProcessLookupError):
            FILES.write(root / "init.scope" / "cgroup.procs", str(pid))
    for group in (root, root / "system.slice"):
        FILES.write(group / "cgroup.subtree_control", f"+{CONTROLLER}")


def _install(machine: Machine, *, releases: bool) -> Path:
    """Install the unit of a task manager, with another program and another controller. Return what it tells.

    ``releases``: with the line that disables the controller when the program ends.
    """
    program, told = machine.directory / "manager.py", machine.directory / "told"
    program.write_text(MANAGER)
    told.touch()
    told.chmod(0o666)
    text = unit_text(Daemon.TASK_MANAGER, Service("/bin/emberkeep", "/etc/emberkeep/config.yaml", "nobody", "/tmp"))
    lines = []
    for line in text.splitlines():
        if line.startswith("ExecStart="):
            lines.append(f"ExecStart={sys.executable} {program} {CHECKOUT / 'src'} {told} {CONTROLLER}")
        elif not line.startswith("ExecStopPost=") or releases:
            lines.append(line.replace("Group=nobody", "Group=nogroup").replace("-cpu -memory", f"-{CONTROLLER}"))
    machine.path("/etc/systemd/system/manager.service").write_text("\n".join(lines) + "\n")
    machine.done("systemctl", "daemon-reload")
    return told


def _starts(told: Path) -> list[str]:
    return told.read_text().splitlines()


def _story(machine: Machine) -> str:
    return str(machine.shown("manager", "ActiveState", "ExecMainStatus", "NRestarts", "Result"))


def test_a_service_is_started_again_beside_what_goes_on_in_groups(machine: Machine) -> None:
    told = _install(machine, releases=True)
    machine.done("systemctl", "start", "manager")
    until(lambda: len(_starts(told)) == 1, lambda: _story(machine))
    machine.done("systemctl", "restart", "manager")
    until(lambda: len(_starts(told)) == 2, lambda: _story(machine))
    machine.done("kill", "-KILL", machine.shown("manager", "MainPID")["MainPID"])
    until(lambda: len(_starts(told)) == 3, lambda: _story(machine))
    assert len(set(_starts(told))) == 1, "the process in the group went on"


def test_without_the_line_in_the_unit_it_is_not(machine: Machine) -> None:
    """This is why the line is there. If this fails with a newer systemd, the line is no longer needed there."""
    told = _install(machine, releases=False)
    machine.done("systemctl", "start", "manager")
    until(lambda: len(_starts(told)) == 1, lambda: _story(machine))
    machine.run("systemctl", "restart", "manager")
    until(lambda: int(machine.shown("manager", "NRestarts")["NRestarts"]) >= 1, lambda: _story(machine))
    assert len(_starts(told)) == 1
