"""The daemons as services of a machine, as ``emberkeep system install`` makes them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.integration.commands import Ended
from tests.integration.conditions import until
from tests.integration.services.machine import EMBERKEEP, Machine, hidden_programs

JOB_MANAGER, TASK_MANAGER = "emberkeep-jobmanager.service", "emberkeep-taskmanager.service"
USER, STATE, CONFIG = "emberkeep", "/var/lib/emberkeep", "/etc/emberkeep/config.yaml"
# The drop-in that the page about services names.
AS_ROOT = """
[Service]
User=root
Group=root
CapabilityBoundingSet=CAP_SETUID CAP_SETGID CAP_CHOWN CAP_DAC_OVERRIDE CAP_FOWNER CAP_KILL
"""
SETTINGS = {
    "emberkeep.state-dir": STATE,
    "rest.address": "127.0.0.1",
    "heartbeat.interval": "500ms",
    "heartbeat.timeout": "6s",
    "taskmanager.memory.process.size": "3g",
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.standby.drivers": "0",
    "taskmanager.standby.executors": "0",
    "taskmanager.class-archive.build": "false",
}


class Services:
    """The daemons as services of a machine. ``executable``: the command that their units start.

    ``writable``: directories that the JobManager writes to besides its state directory.
    """

    def __init__(
        self,
        machine: Machine,
        settings: Mapping[str, str] = SETTINGS,
        executable: str = str(EMBERKEEP),
        writable: Sequence[str] = (),
    ) -> None:
        self.machine = machine
        self.user = USER  # who gives the commands
        self._executable = executable
        self._writable = writable
        config = machine.path(CONFIG)
        config.parent.mkdir()
        config.write_text("".join(f"{key}: '{value}'\n" for key, value in settings.items()))
        if hidden_programs():
            drop_in = machine.path(f"/etc/systemd/system/{JOB_MANAGER}.d/programs.conf")
            drop_in.parent.mkdir()
            drop_in.write_text("[Service]\nProtectHome=no\n")
        self.install()
        machine.done("systemd-sysusers")
        machine.done("systemd-tmpfiles", "--create", "emberkeep.conf")

    def install(self) -> None:
        """Write the units, and let systemd read them. Other units of an earlier release are replaced."""
        writable = (word for path in self._writable for word in ("--writable", path))
        self.machine.done(self._executable, "system", "install", "--replace", *writable)
        self.machine.done("systemctl", "daemon-reload")

    def run_as_root(self, jobs: str) -> None:
        """Let both services, and the commands, be root's from their next start on. ``jobs``: a new user for jobs."""
        self.user = "root"
        self.machine.path("/etc/sysusers.d/jobs.conf").write_text(f"u {jobs} - - /nonexistent\n")
        self.machine.done("systemd-sysusers")
        with self.machine.path(CONFIG).open("a") as config:
            config.write(f"security.run-as: '*={jobs}'\n")
        for unit in (JOB_MANAGER, TASK_MANAGER):
            drop_in = self.machine.path(f"/etc/systemd/system/{unit}.d/run-as.conf")
            drop_in.parent.mkdir(exist_ok=True)
            drop_in.write_text(AS_ROOT)
        self.machine.done("systemctl", "daemon-reload")

    def start(self) -> None:
        self.machine.done("systemctl", "start", JOB_MANAGER, TASK_MANAGER)
        until(lambda: self.registered() == 1, self.story)

    def command(self, *words: str) -> Ended:
        settings = (f"HOME={STATE}", f"EMBERKEEP_CONF={CONFIG}")
        return self.machine.run("env", *settings, self._executable, *words, user=self.user)

    def done(self, *words: str) -> str:
        ended = self.command(*words)
        assert ended.code == 0, f"{' '.join(words)}: {ended}\n{self.story()}"
        return ended.out

    def registered(self) -> int:
        return len(re.findall(r"^tm-", self.command("taskmanagers").out, re.MULTILINE))

    def main_pid(self, unit: str) -> int:
        return int(self.machine.shown(unit, "MainPID")["MainPID"])

    def has_ended(self, unit: str) -> bool:
        """True once nothing of a service's start or stop goes on either."""
        return self.machine.shown(unit, "ActiveState")["ActiveState"] in ("inactive", "failed")

    def story(self) -> str:
        told = [self.machine.run("systemctl", "status", "--no-pager", JOB_MANAGER, TASK_MANAGER).out]
        told.append(str(self.command("cluster", "status")))
        logs = sorted(self.machine.path(STATE).rglob("*.log"))
        return "\n".join([*told, *(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in logs)])
