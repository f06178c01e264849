"""Two machines that run both daemons as services, with one shared directory, a network and a ZooKeeper server.

Each has its releases in directories of their own, and a link to the one that its services start.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import msgspec

from emberkeep.protocol.rest_cluster import ClusterOverview
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from tests.integration.conditions import until
from tests.integration.hosts.namespaces import Namespaces
from tests.integration.services.machine import CHECKOUT, Machine
from tests.integration.services.services import JOB_MANAGER, SETTINGS, STATE, TASK_MANAGER, USER, Services

_RELEASES = "/mnt/releases"
_LINK = f"{_RELEASES}/current"
_TOKEN, _LOGIN = "/etc/emberkeep/token", "/etc/emberkeep/zookeeper-login"
_SWITCH = "ip link set lo up && ip link add lan type bridge && ip link set lan up && echo ready && exec sleep infinity"
_ZOOKEEPER = """
[Service]
User={user}
ExecStart={python} -m emberkeep.daemons.zookeeper --directory {state}/zookeeper --address {address} --client-port 2181 \
 --number 1
"""
_COMMAND = """#!{python}
import sys
from emberkeep.cli.main import main

sys.exit(main())
"""


class ServiceCluster:
    """``start`` first. ``directory``: for files of the test."""

    def __init__(self, directory: Path, release: str) -> None:
        """``release``: the version that is installed at first."""
        self._addresses = ("10.77.0.1", "10.77.0.2")
        self._switch = Namespaces(("net",), ("sh", "-c", _SWITCH), {})
        self.shared = directory / "shared"
        self.shared.mkdir()
        self._machines: list[Machine] = []
        self.services: list[Services] = []
        try:
            for address in self._addresses:
                self._machines.append(self._machine(directory / address, address))
                self.add_release(self._machines[-1], release)
                use_release(self._machines[-1], release)
                self.services.append(self._install(self._machines[-1], address))
            self._hand_out_secrets()
        except BaseException:
            self.close()
            raise

    def _machine(self, directory: Path, address: str) -> Machine:
        """Start a machine at the switch, with the shared directory."""
        directory.mkdir()
        machine = Machine(directory, shared=self.shared)
        try:
            port = f"port-{len(self._machines)}"
            peer = ("peer", "name", "eth0", "netns", str(machine.pid))
            self._switch.run("ip", "link", "add", port, "type", "veth", *peer)
            self._switch.run("ip", "link", "set", port, "master", "lan", "up")
            machine.done("ip", "address", "add", f"{address}/24", "dev", "eth0")
            machine.done("ip", "link", "set", "eth0", "up")
        except BaseException:
            machine.close()
            raise
        return machine

    @staticmethod
    def add_release(machine: Machine, version: str) -> None:
        """Install a release, which is this one under another name: its packages, over the same libraries."""
        place = f"{_RELEASES}/{version}"
        machine.done(sys.executable, "-m", "venv", "--without-pip", place)
        packages = machine.path(place) / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
        (packages / "libraries.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        shutil.copytree(CHECKOUT / "src" / "emberkeep", packages / "emberkeep")
        (packages / "emberkeep" / "__init__.py").write_text(f'__version__ = "{version}"\n')
        command = machine.path(f"{place}/bin/emberkeep")
        command.write_text(_COMMAND.format(python=f"{place}/bin/python"))
        command.chmod(0o755)

    def _install(self, machine: Machine, address: str) -> Services:
        settings = {
            **SETTINGS,
            "rest.address": address,
            "rest.bind-address": address,
            "taskmanager.host": address,
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": f"{self._addresses[0]}:2181",
            "high-availability.zookeeper.client.authorization-file": _LOGIN,
            "high-availability.storageDir": f"{self.shared}/emberkeep",
            "security.token-file": _TOKEN,
        }
        return Services(machine, settings, f"{_LINK}/bin/emberkeep", (str(self.shared),))

    def _hand_out_secrets(self) -> None:
        """Give both machines the same token and login, and each a certificate."""
        secret = {_TOKEN: secrets.token_hex(32), _LOGIN: f"digest:emberkeep:{secrets.token_hex(16)}"}
        for services in self.services:
            for path, text in secret.items():
                place = services.machine.path(path)
                place.write_text(text)
                place.chmod(0o600)
                services.machine.done("chown", USER, path)
        first, second = self.services
        owner = first.machine.path(STATE).stat()
        os.chown(self.shared, owner.st_uid, owner.st_gid)
        first.done("security", "init", "--host", self._addresses[0])
        first.done("security", "bundle", "--host", self._addresses[1], f"{self.shared}/bundle")
        tls = f"{STATE}/tls"
        second.machine.done("cp", "-r", f"{self.shared}/bundle", tls, user=USER)
        second.machine.done("chmod", "-R", "go=", tls, user=USER)

    def start(self) -> None:
        text = _ZOOKEEPER.format(user=USER, python=sys.executable, state=STATE, address=self._addresses[0])
        self._machines[0].path("/etc/systemd/system/zookeeper.service").write_text(text)
        self._machines[0].done("systemctl", "daemon-reload")
        self._machines[0].done("systemctl", "start", "zookeeper")
        for services in self.services:
            services.machine.done("systemctl", "start", JOB_MANAGER, TASK_MANAGER)
        until(lambda: self.registered() == len(self.services), self.story)

    # --- asking -------------------------------------------------------------------------------------------------------

    def command(self, *words: str) -> str | None:
        """Run a command of the client on a machine that answers; None if there is none at this moment."""
        for services in self.services:
            ended = services.command(*words)
            if ended.code == 0:
                return ended.out
        return None

    def done(self, *words: str) -> str:
        return until(lambda: self.command(*words), self.story)

    def overview(self) -> ClusterOverview | None:
        text = self.command("cluster", "status", "-o", "json")
        return None if text is None else msgspec.convert(msgspec.json.decode(text)["overview"], ClusterOverview)

    def registered(self) -> int:
        overview = self.overview()
        return 0 if overview is None else overview.taskmanagers

    def leader(self) -> Services:
        """The services of the machine whose JobManager leads."""
        overview = until(self.overview, self.story)
        address = overview.emberkeep.job_manager.partition(":")[0]
        return self.services[self._addresses.index(address)]

    def job(self, job_id: str) -> JobDetailsInfo:
        return msgspec.convert(msgspec.json.decode(self.done("info", job_id, "-o", "json"))["job"], JobDetailsInfo)

    def wait_for(self, job_id: str, condition: Callable[[JobDetailsInfo], object]) -> JobDetailsInfo:
        """Return the job once it fulfils the condition."""

        def look() -> JobDetailsInfo | None:
            job = self.job(job_id)
            return job if condition(job) else None

        return until(look, lambda: f"{self.job(job_id)}\n{self.story()}")

    def story(self) -> str:
        return "\n".join(services.story() for services in self.services)

    def close(self) -> None:
        for machine in self._machines:
            machine.close()
        self._switch.kill()


def used_release(machine: Machine, pid: int) -> str:
    """Return the release whose programs a process of a machine runs."""
    words = machine.path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return str(Path(words[0]).relative_to(_RELEASES).parts[0])


def use_release(machine: Machine, version: str) -> None:
    """Let what a machine starts from now on be of that release."""
    machine.done("ln", "--symbolic", "--force", "--no-dereference", version, _LINK)
