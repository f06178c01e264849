"""A real Slurm on this machine: slurmctld and two slurmd, in a network namespace of the test's own.

Slurm authenticates nobody here (auth/none), so it must not be reachable from outside. Two nodes share the machine; the
namespace's loopback interface gives them an address that does not begin with 127, which Slurm needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.integration.conditions import until, wait_until_stopped

ADDRESS = "10.250.0.1"
NODES = ("n1", "n2")
_CLONE_NEWNET = 0x40000000
_CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort=16817
AuthType=auth/none
CredType=cred/none
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerParameters=bf_interval=1,sched_interval=1
KillWait=5
MinJobAge=30
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
GresTypes=gpu
NodeName=n1 NodeHostname={host} NodeAddr={address} Port=17001 CPUs=4 RealMemory=8000 Gres=gpu:2
NodeName=n2 NodeHostname={host} NodeAddr={address} Port=17002 CPUs=4 RealMemory=8000 Gres=gpu:2
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SlurmctldParameters=preempt_send_user_signal
PartitionName=main Nodes=n1,n2 Default=YES MaxTime=INFINITE PriorityTier=1 GraceTime=120 State=UP
PartitionName=urgent Nodes=n1,n2 MaxTime=INFINITE PriorityTier=10 PreemptMode=off State=UP
"""


def why_impossible() -> str:
    """Why this machine cannot run it; "" if it can."""
    if shutil.which("slurmctld") is None or shutil.which("slurmd") is None:
        return "Slurm is not installed: run `make slurm`"
    return why_no_network()


def why_no_network() -> str:
    """Why this machine has no network namespaces for tests; "" if it has."""
    if shutil.which("ip") is None:
        return "the command ip (iproute2) is not installed"
    if os.getuid() != 0:
        return "only root makes network namespaces, and runs slurmd"
    can = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0
    return "" if can else "this machine permits no network namespaces"


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Let this thread, and all that it starts, use a new network namespace that has no connection to any other.

    At the end, everything that still runs in it is killed: Slurm's daemons start processes that are not our children.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(_CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "unshare")
        own = os.stat("/proc/thread-self/ns/net").st_ino  # noqa: PTH116
        for words in (("link", "set", "lo", "up"), ("addr", "add", f"{ADDRESS}/24", "dev", "lo")):
            subprocess.run(["ip", *words], check=True)
        try:
            yield
        finally:
            _end_all_in(own)
    finally:
        if libc.setns(before, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(before)


def _end_all_in(network: int) -> None:
    """Kill the processes in a network namespace, apart from this one, until none is left."""

    def are_gone() -> bool:
        found = _in_network(network)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not found

    until(are_gone, "the processes of a network namespace have ended")


def _in_network(network: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has ended
                if (entry / "ns" / "net").stat().st_ino == network:
                    found.append(int(entry.name))
    return found


class RealSlurm:
    """``start`` first; ``close`` cancels the jobs and ends the daemons."""

    def __init__(self, directory: Path) -> None:
        self.configuration = directory / "slurm.conf"
        self._directory = directory
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        for name in ("state", *NODES):
            (directory / name).mkdir(parents=True)
        host = socket.gethostname().partition(".")[0]
        self.configuration.write_text(
            _CONFIGURATION.format(host=host, address=ADDRESS, user="root", directory=directory)
        )
        # Slurm looks at the device files of GPUs, and gives their numbers to jobs. These are like /dev/null.
        for number in range(2):
            os.mknod(directory / f"gpu{number}", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        (directory / "gres.conf").write_text(f"Name=gpu File={directory}/gpu[0-1]\n")

    def start(self) -> None:
        self.start_controller()
        for node in NODES:
            self._start(node, "slurmd", "-N", node)
        until(lambda: self.run("sinfo", "-h", "-N", "-o", "%T").split() == 2 * len(NODES) * ["idle"], self.story)

    def start_controller(self) -> None:
        self._start("slurmctld", "slurmctld")

    def kill_controller(self) -> None:
        """SIGKILL to slurmctld, once it has saved its jobs: it does so every few seconds, and forgets the others."""
        saved = self._directory / "state" / "job_state"
        names = {name.encode() for name in self.run("squeue", "-h", "-o", "%j").split()}
        until(lambda: saved.exists() and all(name in saved.read_bytes() for name in names), self.story)
        daemon = self._daemons.pop("slurmctld")
        daemon.kill()
        daemon.wait()

    def _start(self, name: str, *words: str) -> None:
        with (self._directory / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                [*words, "-f", str(self.configuration), "-D"], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )

    def freeze_controller(self) -> None:
        """Let slurmctld answer nothing until ``thaw_controller``."""
        controller = self._daemons["slurmctld"]
        controller.send_signal(signal.SIGSTOP)
        wait_until_stopped(controller.pid)

    def thaw_controller(self) -> None:
        self._daemons["slurmctld"].send_signal(signal.SIGCONT)

    def run(self, *words: str) -> str:
        """What a command of Slurm prints; "" if it fails."""
        environment = {**os.environ, "SLURM_CONF": str(self.configuration)}
        ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        return ended.stdout if ended.returncode == 0 else ""

    def jobs(self) -> dict[str, tuple[int, str, str]]:
        """The jobs that wait or run: id, state and node, by the number of the task manager."""
        lines = self.run("squeue", "-h", "-o", "%j %A %T %N").splitlines()
        split = (line.split(" ") for line in lines)
        return {f"tm-{name.rpartition('-tm-')[2]}": (int(number), state, node) for name, number, state, node in split}

    def jobs_named(self, ending: str) -> list[tuple[int, str]]:
        """Ids and states of the jobs that wait or run, and whose names end like that, in the order of submission."""
        lines = (line.split(" ") for line in self.run("squeue", "-h", "-o", "%j %A %T").splitlines())
        return sorted((int(number), state) for name, number, state in lines if name.endswith(ending))

    def reason_of(self, job: int) -> str:
        """Why a job waits."""
        return self.run("squeue", "-h", "-o", "%r", "-j", str(job)).strip()

    def state_of(self, job: int) -> str:
        """The state of a job that may have ended; "" if Slurm has forgotten it."""
        return self.run("squeue", "-h", "-o", "%T", "--states=all", "-j", str(job)).strip()

    def submitted(self) -> int:
        """How many jobs have ever been submitted: their ids are consecutive."""
        (number,) = re.findall(r"NEXT_JOB_ID\s*=\s*(\d+)", self.run("scontrol", "show", "config"))
        return int(number) - 1

    def wait_for_questions(self, count: int) -> None:
        """Wait until somebody else has asked for the jobs so many times."""

        def asked() -> int:
            return sum(map(int, re.findall(r"REQUEST_JOB_INFO\s.*count:(\d+)", self.run("sdiag"))))

        before = asked()
        self.wait_until(lambda: asked() >= before + count)

    def close_partition(self) -> None:
        """Let jobs that do not run yet wait."""
        self.run("scontrol", "update", "partitionname=main", "state=down")

    def open_partition(self) -> None:
        """Undo ``close_partition``."""
        self.run("scontrol", "update", "partitionname=main", "state=up")

    @contextlib.contextmanager
    def failed_node(self, node: str) -> Iterator[None]:
        """Let Slurm take a node for failed until the end of the context, and with it the jobs there."""
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=it burns")
        try:
            yield
        finally:
            self.run("scontrol", "update", f"nodename={node}", "state=resume")
            self.wait_until(lambda: set(self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T").split()) == {"idle"})

    def take_node(self, node: str) -> None:
        """Submit a job that needs the whole node and preempts those of task managers."""
        words = ("--partition=urgent", f"--nodelist={node}", "--exclusive", "--job-name=urgent", "--wrap=sleep 20")
        assert self.run("sbatch", "--output=/dev/null", *words)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        until(condition, self.story, seconds=60)

    def story(self) -> str:
        logs = (path.read_text()[-1500:] for path in sorted(self._directory.glob("*.log")))
        return "\n".join((self.run("squeue"), self.run("sinfo", "-N"), *logs))

    def close(self) -> None:
        try:
            if "slurmctld" in self._daemons:
                self.run("scancel", "--me")
                until(lambda: not self.run("squeue", "-h").strip(), self.story, seconds=60)
        finally:
            for daemon in reversed(self._daemons.values()):
                daemon.send_signal(signal.SIGTERM)
            for daemon in self._daemons.values():
                try:
                    daemon.wait(20)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
