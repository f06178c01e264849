"""The ResourceManagerDriver ``local-processes``: one task manager process on this machine per configured node.

A node's task manager always has the same id, hence the same working directory. The directory's lock admits only one
process, whatever starts it, and the process takes over what its predecessor left there. Records tell the next leader
what was started. If something else has started the task manager again, the task manager's own record in the working
directory names the new process.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import structlog

from emberkeep.adapters.processes.table import send_signal
from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.options.directories import WORKING_DIRECTORY
from emberkeep.base.configuration.options.job_managers import JOB_MANAGER_ADDRESS
from emberkeep.base.configuration.options.resource_drivers import LOCAL_NODES
from emberkeep.base.configuration.options.security import TOKEN_FILE
from emberkeep.base.configuration.options.task_managers import (
    CORES,
    DRIVER_PLACES,
    MEMORY,
    SLOTS,
    TASK_MANAGER_HOST,
    TASK_MANAGER_ID,
    TASK_MANAGER_NODE,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput, NewerFormat, RetryLater
from emberkeep.base.files.log_tail import last_lines, private_output
from emberkeep.base.files.private import make_private
from emberkeep.base.ids import TaskManagerId, parse_task_manager_id
from emberkeep.base.processes.process_identity import ProcessIdentity, boot_id, is_alive, read_stat
from emberkeep.base.started_task_managers import (
    MARK_VARIABLE,
    StartedRecord,
    forget_started,
    read_started,
    write_started,
)
from emberkeep.blocklist.model import parse_node_id
from emberkeep.daemons.jobmanager.resource_drivers.settings_handed_on import environment_handed_on, write_settings
from emberkeep.daemons.leader_following import is_highly_available
from emberkeep.daemons.records.agent_files import read_agent_life
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.model import ResourceProfile, RuntimeVersions
from emberkeep.slots.resource_driver import NoFreeNode, StartedTaskManager, TaskManagerSpec
from emberkeep.spark.distribution import spark_version

log = structlog.get_logger(__name__)

_MEMORY_SHARE = 0.8
_MIB = 1024**2
_KILL_SECONDS = 5.0
_POLL = 0.05
_CHILDREN: set[int] = set()  # pids of all task managers that this process started and has not reaped


@dataclass(frozen=True)
class LocalNode:
    """An address of this machine that acts as a separate node."""

    node_id: str
    address: str

    @property
    def task_manager(self) -> TaskManagerId:
        return TaskManagerId(f"tm-{self.node_id}")


def parse_nodes(text: str) -> tuple[LocalNode, ...]:
    """Parse a list of nodes such as "127.0.0.2,spare=127.0.0.3". Raises InvalidInput."""
    nodes = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, address = part.partition("=")
        node = LocalNode(parse_node_id(name.strip()), address.strip() if equals else name.strip())
        parse_task_manager_id(node.task_manager)
        nodes.append(node)
    if not nodes or len({node.node_id for node in nodes}) < len(nodes):
        raise InvalidInput(
            f"{LOCAL_NODES.key}: {text!r} does not list different nodes",
            field=LOCAL_NODES.key,
            hint="for example 127.0.0.2,127.0.0.3",
        )
    return tuple(nodes)


class LocalProcesses:
    """Implements ResourceManagerDriver. ``job_manager``: where its task managers register, "host:port"."""

    def __init__(self, configuration: Configuration, layout: StateLayout, job_manager: str) -> None:
        """Write the settings of the task managers. Raises InvalidInput, Fatal (they cannot be written)."""
        self._configuration = configuration
        self._layout = layout
        self._job_manager = job_manager
        self._nodes = parse_nodes(configuration[LOCAL_NODES])
        self._directory = layout.started_task_managers
        self._starts: dict[TaskManagerId, int] = {}  # number of starts by this driver
        self._spec = self._new_spec()
        self._settings = write_settings(self._directory, configuration, same_machine=True)

    @property
    def spec(self) -> TaskManagerSpec:
        return self._spec

    async def survey(self) -> tuple[StartedTaskManager, ...]:
        return await asyncio.to_thread(self._survey)

    def _survey(self) -> tuple[StartedTaskManager, ...]:
        _reap()
        return tuple(
            StartedTaskManager(record.task_manager, record.node_id, alive=bool(_processes(record)))
            for record in read_started(self._directory)
        )

    async def outages(self) -> None:
        return None

    async def start(self, blocked: BlocklistView, taken: AbstractSet[TaskManagerId]) -> StartedTaskManager:
        free = [
            node
            for node in self._nodes
            if node.task_manager not in taken and not blocked.is_blocked(node.task_manager, node.node_id)
        ]
        if not free:
            count = sum(blocked.is_blocked(node.task_manager, node.node_id) for node in self._nodes)
            raise NoFreeNode(
                f"no node is free: of {len(self._nodes)} nodes, {count} are blocked and the others have a task manager"
            )
        # Choose the node with the fewest starts, so that others get a turn if starts fail; among equals, the first.
        node = min(free, key=lambda node: self._starts.get(node.task_manager, 0))
        await asyncio.to_thread(self._start, node)
        return StartedTaskManager(node.task_manager, node.node_id)

    async def revive(self, task_manager: TaskManagerId, blocked: BlocklistView) -> None:
        node = next((node for node in self._nodes if node.task_manager == task_manager), None)
        if node is None:
            raise Fatal(f"{LOCAL_NODES.key} no longer lists the node of task manager {task_manager}")
        await asyncio.to_thread(self._start, node)

    def _start(self, node: LocalNode) -> None:
        """Start a node's task manager. Raises Fatal; in that case no process runs."""
        directory = WorkingDirectory(self._working_directory(node))
        mark = secrets.token_hex(16)
        record = StartedRecord(
            task_manager=node.task_manager, node_id=node.node_id, mark=mark, directory=str(directory.root)
        )
        self._starts[node.task_manager] = self._starts.get(node.task_manager, 0) + 1
        write_started(self._directory, record)
        identity = self._spawn(node, directory, mark)
        write_started(self._directory, msgspec.structs.replace(record, identity=identity))

    def _spawn(self, node: LocalNode, directory: WorkingDirectory, mark: str) -> ProcessIdentity:
        try:
            make_private(directory.logs)
            with private_output(_output(directory, "out")) as out, private_output(_output(directory, "err")) as err:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "emberkeep.daemons.taskmanager", *self._arguments(node, directory)],
                    env={**environment_handed_on(os.environ), MARK_VARIABLE: mark},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
        except OSError as error:
            raise Fatal(
                f"cannot start task manager {node.task_manager}: {error.strerror} ({error.filename or sys.executable})"
            ) from error
        _CHILDREN.add(process.pid)
        # ``_reap`` reaps the process. A return code keeps Popen from doing so when the object is collected.
        process.returncode = 0
        stat = read_stat(process.pid)
        assert stat is not None, "a child keeps its pid until it is reaped"  # noqa: S101
        return ProcessIdentity(pid=stat.pid, start_ticks=stat.start_ticks, boot_id=boot_id())

    def _arguments(self, node: LocalNode, directory: WorkingDirectory) -> list[str]:
        own = {
            TASK_MANAGER_ID.key: node.task_manager,
            TASK_MANAGER_HOST.key: node.address,
            TASK_MANAGER_NODE.key: node.node_id,
            WORKING_DIRECTORY.key: str(directory.root),
            TOKEN_FILE.key: str(self._layout.token_file),
            MEMORY.key: f"{self._spec.total.memory_mb}m",
            CORES.key: str(self._spec.total.cores),
        }
        if not is_highly_available(self._configuration):
            own[JOB_MANAGER_ADDRESS.key] = self._job_manager
        arguments = ["--state-dir", str(self._layout.root), "--config", str(self._settings)]
        for key, value in own.items():
            arguments += ["-D", f"{key}={value}"]
        return arguments

    def _working_directory(self, node: LocalNode) -> Path:
        directory = self._layout.working_directory(node.task_manager)
        # Task managers must not share a working directory.
        return directory / node.task_manager if self._configuration[WORKING_DIRECTORY] else directory

    async def end(self, task_manager: TaskManagerId) -> None:
        await asyncio.to_thread(self._end, task_manager)

    def _end(self, task_manager: TaskManagerId) -> None:
        """Kill all processes of a task manager, then delete its record. Blocks.

        Raises RetryLater if a process does not end.
        """
        for record in read_started(self._directory):
            if record.task_manager != task_manager:
                continue
            left = _processes(record)
            if not left:
                said = last_lines(_output(WorkingDirectory(Path(record.directory)), "err"))
                log.info("the process of a task manager has ended", task_manager=task_manager, said=said)
            for identity in left:
                send_signal(identity.pid, identity.start_ticks, signal.SIGKILL)
            deadline = time.monotonic() + _KILL_SECONDS
            while any(map(is_alive, left)):
                if time.monotonic() > deadline:
                    raise RetryLater(f"a process of task manager {task_manager} does not end after SIGKILL")
                time.sleep(_POLL)
            forget_started(self._directory, task_manager)

    def _new_spec(self) -> TaskManagerSpec:
        configuration = self._configuration
        memory = configuration[MEMORY]
        if not memory:
            memory = int(psutil.virtual_memory().total * _MEMORY_SHARE / len(self._nodes))
        slots = configuration[SLOTS]
        # Every slot can be used, even if the machine has fewer cores than slots.
        cores = configuration[CORES] or max(os.cpu_count() or 1, slots)
        return TaskManagerSpec(
            slots=slots,
            driver_places=configuration[DRIVER_PLACES],
            total=ResourceProfile(cores=cores, memory_mb=memory // _MIB),
            runtime=RuntimeVersions(python=f"{sys.version_info.major}.{sys.version_info.minor}", spark=spark_version()),
        )


def _processes(record: StartedRecord) -> list[ProcessIdentity]:
    """Return the processes that run as this task manager: the one that was started, and a later one in its directory.

    Blocks.
    """
    try:
        life = read_agent_life(WorkingDirectory(Path(record.directory)).agent_record)
    except NewerFormat:
        life = None
    since = None if life is None or not is_alive(life.process) else life.process
    return list(dict.fromkeys(filter(None, (record.process(), since))))


def _output(directory: WorkingDirectory, stream: str) -> Path:
    return directory.logs / f"taskmanager.{stream}"


def _reap() -> None:
    """Reap the task managers that have ended."""
    for pid in list(_CHILDREN):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            _CHILDREN.discard(pid)
