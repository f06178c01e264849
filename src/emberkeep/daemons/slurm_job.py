"""What a task manager's Slurm job runs: ``python -m emberkeep.daemons.slurm_job``, with a task manager's arguments.

It starts the task manager on the node that Slurm has chosen, and starts it again if its process ends by itself: the
drivers and executors there continue. Slurm signals this process, because it is the batch script:

- SIGUSR1, before the time limit or a preemption: the work moves to other task managers, then the job ends.
- SIGTERM, when the job is cancelled: the work ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from emberkeep.adapters.processes.place_lock import held
from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.options.directories import WORKING_DIRECTORY
from emberkeep.base.configuration.options.high_availability import ZOOKEEPER_QUORUM
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ADDRESS
from emberkeep.base.configuration.options.resource_drivers import SLURM_INTERFACE
from emberkeep.base.configuration.options.task_managers import (
    RESOURCE_ADDRESSES,
    TASK_MANAGER_HOST,
    TASK_MANAGER_ID,
    TASK_MANAGER_NODE,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal, InvalidInput
from emberkeep.daemons.arguments import parse_arguments
from emberkeep.daemons.process_main import EXIT_FAILED, EXIT_USAGE
from emberkeep.daemons.slurm_resources import given_addresses
from emberkeep.daemons.supervision.supervised_agent import AGENT, Supervisor

_SIGNALS = {signal.SIGUSR1: signal.SIGUSR1, signal.SIGTERM: signal.SIGTERM}
_ZOOKEEPER_PORT = 2181  # of a server that is named without one
_KEPT_DIRECTORIES = 5  # of earlier jobs of this task manager on this file system, for their logs


def main(arguments: list[str]) -> int:
    """Run the task manager until its job is over. Return the exit code of the job."""
    try:
        configuration, layout = parse_arguments("slurm-job", arguments)
        own = _own_settings(configuration, layout, os.environ)
    except EmberkeepError as error:
        sys.stderr.write(f"emberkeep slurm-job: {error.message}\n" + (f"  {error.hint}\n" if error.hint else ""))
        return EXIT_USAGE if isinstance(error, InvalidInput) else EXIT_FAILED
    directory = Path(own[WORKING_DIRECTORY.key])
    _forget_earlier(directory)
    command = [*AGENT, *arguments]
    for key, value in own.items():
        command += ["-D", f"{key}={value}"]
    code = Supervisor(command, _SIGNALS).run()
    _keep_only_logs(directory)
    return code


def _own_settings(configuration: Configuration, layout: StateLayout, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that depend on the node and on the job.

    Raises Fatal (not in a Slurm job, no address, fewer resources than asked for), InvalidInput.
    """
    node, job = environ.get("SLURMD_NODENAME", ""), environ.get("SLURM_JOB_ID", "")
    if not node or not job.isdecimal():
        raise Fatal("this is not a Slurm job: SLURMD_NODENAME or SLURM_JOB_ID is not set")
    name = configuration[TASK_MANAGER_ID]
    base = configuration[WORKING_DIRECTORY]
    root = Path(os.path.expandvars(base)) if base else layout.root / "taskmanagers"
    addresses = given_addresses(configuration, environ)
    return {
        **({} if addresses is None else {RESOURCE_ADDRESSES.key: addresses}),
        TASK_MANAGER_NODE.key: node,
        TASK_MANAGER_HOST.key: _address(configuration),
        WORKING_DIRECTORY.key: str(root / name / job),
    }


def _address(configuration: Configuration) -> str:
    """Return this node's address that other nodes reach. Raises Fatal."""
    interface = configuration[SLURM_INTERFACE]
    if interface:
        found = [
            each.address
            for each in psutil.net_if_addrs().get(interface, [])
            if each.family in (socket.AF_INET, socket.AF_INET6) and "%" not in each.address
        ]
        if not found:
            raise Fatal(
                f"{socket.gethostname()} has no network interface {interface} with an address",
                hint=f"correct {SLURM_INTERFACE.key}",
            )
        return found[0]
    targets = configuration[JOB_MANAGER_ADDRESS] or configuration[ZOOKEEPER_QUORUM].partition("/")[0]
    problems = []
    for target in targets.split(","):  # of several ZooKeeper servers, one may have no address now
        try:
            return _local_address(target.strip())
        except (OSError, ValueError) as error:
            problems.append(f"{target.strip()}: {error}")
    raise Fatal(f"this node has no route to {'; '.join(problems)}", hint=f"set {SLURM_INTERFACE.key}")


def _local_address(target: str) -> str:
    """Return the address from which this node sends to ``target``. Raises OSError, ValueError."""
    host, colon, port = target.rpartition(":")
    where = (host.strip("[]"), int(port)) if colon else (target, _ZOOKEEPER_PORT)
    family, kind, _, _, address = socket.getaddrinfo(*where, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # sends nothing: it only makes the kernel choose the local address
        return str(probe.getsockname()[0])


def _forget_earlier(directory: Path) -> None:
    """Delete the oldest working directories that earlier jobs of this task manager have left here.

    If the clusters of one user share the place, a task manager of the same name may still work in one of them.
    """
    try:
        earlier = [each for each in directory.parent.iterdir() if each.name.isdecimal() and each != directory]
    except OSError:
        return  # there are none, or the task manager reports why it cannot use the directory
    for each in sorted(earlier, key=lambda each: int(each.name))[:-_KEPT_DIRECTORIES]:
        with contextlib.suppress(EmberkeepError), held(WorkingDirectory(each).lock, "its removal", hint=""):
            shutil.rmtree(each, ignore_errors=True)


def _keep_only_logs(directory: Path) -> None:
    """Delete all but the logs of a job that is over: nothing else there is of use to a later one."""
    for each in directory.iterdir() if directory.is_dir() else ():
        if each.name == "logs":
            continue
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        else:
            each.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
