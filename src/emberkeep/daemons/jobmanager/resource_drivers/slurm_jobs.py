"""The ResourceManagerDriver ``slurm``: one Slurm job per task manager.

Slurm's queue is the durable record: a job's name says to which cluster and task manager it belongs, so the next leader
finds all of them there, wherever it runs. A job named like a live one waits until that one has ended
(``--dependency=singleton``), so a submission whose outcome is unknown never leads to two task managers under one id;
``survey`` cancels the waiting one.

All that a task manager has started ends with its job. So each job has a working directory of its own, and no task
manager process claims to know what became of the processes of an earlier job, which may have run on another node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path

import structlog

from emberkeep.adapters.slurm.commands import SlurmCommands
from emberkeep.adapters.slurm.ended_jobs import read_ended, write_ended
from emberkeep.adapters.slurm.nodes import NODE_FORMAT, SlurmNode, parse_nodes
from emberkeep.adapters.slurm.queue import Phase, QueuedJob, parse_queue
from emberkeep.adapters.slurm.submission import Request, batch_script, sbatch_arguments, submitted_id
from emberkeep.base.cluster_identity import cluster_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import WORKING_DIRECTORY
from emberkeep.base.configuration.options.resource_drivers import (
    SLURM_ACCOUNT,
    SLURM_ARGUMENTS,
    SLURM_BIN,
    SLURM_COMMAND_TIMEOUT,
    SLURM_CONSTRAINT,
    SLURM_DRAIN_TIME,
    SLURM_GRES,
    SLURM_PARTITION,
    SLURM_QOS,
    SLURM_QUERY_INTERVAL,
    SLURM_TIME_LIMIT,
)
from emberkeep.base.configuration.options.task_managers import (
    SIGTERM_ENDS_WORK,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, InvalidInput, Unavailable, UnknownOutcome
from emberkeep.base.files.log_tail import last_lines
from emberkeep.base.ids import TaskManagerId
from emberkeep.daemons.jobmanager.resource_drivers.call_pauses import CallPauses
from emberkeep.daemons.jobmanager.resource_drivers.other_machines import (
    AGENT_MB,
    AgentCommand,
    free_id,
    nodes_to_avoid,
    require_reachable,
    spec_of,
)
from emberkeep.daemons.jobmanager.resource_drivers.settings_handed_on import environment_handed_on, write_settings
from emberkeep.daemons.slurm_resources import slurm_resources
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.resource_driver import NodeOutage, StartedTaskManager, TaskManagerSpec

log = structlog.get_logger(__name__)

_OUTPUT = ".log"  # suffix of the file with a job's output
_OUTPUTS_KEPT = 200
_ENDED = "ended-slurm-jobs"


class SlurmJobs:
    """Implements ResourceManagerDriver. ``job_manager``: where its task managers register, "host:port".

    ``_mine`` has the newest known jobs of this cluster, by task manager. A job that has ended stays until ``end`` or
    ``revive``, even when Slurm has forgotten it.
    """

    def __init__(
        self,
        configuration: Configuration,
        layout: StateLayout,
        job_manager: str,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write the settings of the task managers. Raises InvalidInput, Fatal (they cannot be written)."""
        self._configuration = configuration
        self._now = now
        self._calls = CallPauses(now)
        self._spec = spec_of(configuration, "Slurm", slurm_resources(configuration))
        require_reachable(
            configuration, job_manager, "task managers on other nodes", "this machine that the nodes reach"
        )
        self._prefix = f"{cluster_id(configuration, layout)}-tm-"
        self._directory = layout.started_task_managers
        self._command = AgentCommand(
            "emberkeep.daemons.slurm_job",
            configuration,
            layout,
            write_settings(self._directory, configuration),
            job_manager,
            self._spec,
            configuration[SLURM_DRAIN_TIME],
        )
        self._request = _request(configuration, layout, self._spec)
        self._commands = SlurmCommands(
            configuration[SLURM_BIN],
            configuration[SLURM_COMMAND_TIMEOUT],
            environment_handed_on(os.environ),
        )
        self._mine: dict[TaskManagerId, QueuedJob] = {}
        self._ended: set[int] = set()  # ids of jobs that were cancelled, or replaced by a newer one; recorded
        self._knows_ended = False  # what earlier leaders have recorded was read
        self._asked_at = float("-inf")  # when the queue was last asked for
        self._problem: EmberkeepError | None = None  # why the last answer could not be used
        self._nodes: tuple[SlurmNode, ...] = ()
        self._nodes_asked_at = float("-inf")
        self._nodes_problem: EmberkeepError | None = None

    @property
    def spec(self) -> TaskManagerSpec:
        return self._spec

    async def survey(self) -> tuple[StartedTaskManager, ...]:
        if self._now() - self._asked_at >= self._configuration[SLURM_QUERY_INTERVAL]:
            await self._look()
        elif self._problem is not None:
            raise self._problem
        return tuple(
            StartedTaskManager(key, job.node, alive=job.phase is not Phase.ENDED, queued=job.phase is Phase.QUEUED)
            for key, job in sorted(self._mine.items())
        )

    async def outages(self) -> tuple[NodeOutage, ...]:
        return tuple(
            NodeOutage(node.name, f"Slurm: {node.reason or node.state}", node.since_ms)
            for node in await self._read_nodes()
            if node.is_drained
        )

    async def start(self, blocked: BlocklistView, taken: AbstractSet[TaskManagerId]) -> StartedTaskManager:
        key = free_id(taken | self._mine.keys(), blocked)
        excluded = await self._blocked_nodes(blocked, key)
        await self._submit(key, excluded)
        return StartedTaskManager(key, "", queued=True)

    async def revive(self, task_manager: TaskManagerId, blocked: BlocklistView) -> None:
        excluded = await self._blocked_nodes(blocked, None)
        job = self._mine.get(task_manager)
        if job is not None:
            self._ended.add(job.job_id)
        await self._submit(task_manager, excluded)
        await self._record_ended()

    async def end(self, task_manager: TaskManagerId) -> None:
        number = self._number_of(f"{self._prefix}{task_manager.removeprefix('tm-')}")
        if number is None:
            return
        job = self._mine.get(task_manager)
        if job is not None and job.phase is Phase.ENDED:
            said = await asyncio.to_thread(last_lines, self._output_of(job))
            log.info(
                "the Slurm job of a task manager has ended",
                task_manager=task_manager,
                job=job.job_id,
                state=job.state,
                node=job.node,
                said=said,
            )
        else:
            # By name: this ends a job of an unknown submission too.
            arguments = (f"--name={self._prefix}{number}", "--me", "--quiet")
            await self._calls.call(f"cancel {number}", partial(self._commands.change, "scancel", *arguments))
        if job is not None:
            self._ended.add(job.job_id)
            del self._mine[task_manager]
            await self._record_ended()

    # --- the queue ----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Read the queue. Raises Unavailable, Fatal: then it is not read again before the query interval is over."""
        self._asked_at = self._now()
        try:
            if not self._knows_ended:
                self._ended |= await asyncio.to_thread(read_ended, self._directory / _ENDED)
                self._knows_ended = True
            printed = await self._commands.read("squeue", "--json", "--me", "--states=all")
            jobs = await asyncio.to_thread(parse_queue, printed)  # a queue may have thousands of jobs
        except EmberkeepError as error:
            self._problem = error
            raise
        self._problem = None
        found: dict[TaskManagerId, list[QueuedJob]] = {}
        for job in jobs:
            number = self._number_of(job.name)
            # Some releases ignore --me together with --json.
            if number is not None and job.job_id not in self._ended and job.user_id in (-1, os.getuid()):
                found.setdefault(TaskManagerId(f"tm-{number}"), []).append(job)
        self._ended &= {job.job_id for job in jobs}
        surplus = []
        for key, known in list(self._mine.items()):
            if key not in found and known.phase is not Phase.ENDED:
                # Slurm forgets a job some minutes after its end.
                self._mine[key] = QueuedJob(known.job_id, known.name, Phase.ENDED, "FORGOTTEN", node=known.node)
        for key, candidates in found.items():
            first, *others = sorted(candidates, key=_precedence)
            self._mine[key] = first
            surplus += [job.job_id for job in others if job.phase is Phase.QUEUED]
            self._ended |= {job.job_id for job in others}
        if surplus:
            await self._cancel_surplus(surplus)

    async def _cancel_surplus(self, jobs: Sequence[int]) -> None:
        """Cancel jobs that wait for another job of their name: submissions that were repeated."""
        try:
            await self._commands.change("scancel", "--quiet", *map(str, jobs))
        except EmberkeepError as error:
            self._ended -= set(jobs)  # found again with the next look
            log.warning("cannot cancel repeated submissions", jobs=list(jobs), reason=str(error))

    async def _record_ended(self) -> None:
        if self._knows_ended:  # otherwise the record may have more
            await asyncio.to_thread(write_ended, self._directory / _ENDED, self._ended)

    def _number_of(self, name: str) -> int | None:
        """Return the number in a job's name; None if it is not a job of this cluster."""
        number = name.removeprefix(self._prefix)
        return int(number) if number != name and re.fullmatch(r"0|[1-9][0-9]{0,8}", number) else None

    # --- submissions --------------------------------------------------------------------------------------------------

    async def _blocked_nodes(self, blocked: BlocklistView, key: TaskManagerId | None) -> tuple[str, ...]:
        """Return the nodes that the job must avoid. Raises NoFreeNode if these are all, Unavailable, Fatal."""
        return nodes_to_avoid((node.name for node in await self._read_nodes()), blocked, key, "Slurm")

    async def _read_nodes(self) -> tuple[SlurmNode, ...]:
        """Return the nodes as Slurm showed them within the query interval. Raises Unavailable, Fatal."""
        if self._now() - self._nodes_asked_at < self._configuration[SLURM_QUERY_INTERVAL]:
            if self._nodes_problem is not None:
                raise self._nodes_problem
            return self._nodes
        arguments = ["-N", "-h", "-o", NODE_FORMAT]
        if partition := self._configuration[SLURM_PARTITION]:
            arguments += ["-p", partition]
        self._nodes_asked_at = self._now()
        try:
            nodes = parse_nodes((await self._commands.read("sinfo", *arguments)).decode("utf-8", "replace"))
            if not nodes:
                raise Unavailable(
                    f"`sinfo` lists no node{f' of partition {partition}' if partition else ''}",
                    hint=f"check {SLURM_PARTITION.key}",
                )
        except EmberkeepError as error:
            self._nodes_problem = error
            raise
        self._nodes, self._nodes_problem = nodes, None
        return nodes

    async def _submit(self, key: TaskManagerId, excluded: Iterable[str]) -> None:
        name = f"{self._prefix}{key.removeprefix('tm-')}"
        script = batch_script(self._command.of(key, self._own_settings()))
        try:
            printed = await self._commands.change(
                "sbatch", *sbatch_arguments(self._request, name, excluded), script=script
            )
        except UnknownOutcome:
            self._asked_at = float("-inf")  # the next survey shows whether it has happened
            raise
        job_id = submitted_id(printed)
        if job_id is None:
            self._asked_at = float("-inf")
            raise UnknownOutcome(f"`sbatch` printed {printed[:100]!r} in place of a job id")
        log.info("submitted a job to Slurm", task_manager=key, job=job_id)
        self._mine[key] = QueuedJob(job_id, name, Phase.QUEUED, "PENDING")
        # A task manager that has long had nothing to say still writes to its output.
        current = {self._output_of(each).name for each in self._mine.values()}
        await asyncio.to_thread(_delete_old_outputs, self._directory, current)

    def _output_of(self, job: QueuedJob) -> Path:
        return self._directory / f"{job.name}-{job.job_id}{_OUTPUT}"

    def _own_settings(self) -> dict[str, str]:
        directory = self._configuration[WORKING_DIRECTORY]
        return {SIGTERM_ENDS_WORK.key: "true", **({WORKING_DIRECTORY.key: directory} if directory else {})}


def _delete_old_outputs(directory: Path, current: AbstractSet[str]) -> None:
    """Delete all but the newest outputs of jobs, and those in ``current``. Blocks. What cannot be deleted stays."""
    paths: list[Path] = []
    with contextlib.suppress(OSError):
        paths.extend(directory.glob(f"*{_OUTPUT}"))
    outputs = []
    for path in paths:
        with contextlib.suppress(OSError):
            if path.name not in current:
                outputs.append((path.stat().st_mtime, path))
    for _, path in sorted(outputs)[:-_OUTPUTS_KEPT]:
        with contextlib.suppress(OSError):
            path.unlink()


def _precedence(job: QueuedJob) -> tuple[int, int]:
    """Sort a job that runs before one that waits, that before one that has ended, and newer ended ones first."""
    order = (Phase.RUNNING, Phase.QUEUED, Phase.ENDED).index(job.phase)
    return order, -job.job_id if job.phase is Phase.ENDED else job.job_id


def _request(configuration: Configuration, layout: StateLayout, spec: TaskManagerSpec) -> Request:
    """Return what every job asks for. Raises InvalidInput (the arguments are not quoted as in a shell)."""
    try:
        extra = tuple(shlex.split(configuration[SLURM_ARGUMENTS]))
    except ValueError as error:
        key = SLURM_ARGUMENTS.key
        raise InvalidInput(f"{key}: {error}", field=key, hint="quote the arguments as in a shell") from None
    drain_seconds = configuration[SLURM_DRAIN_TIME]
    return Request(
        cpus=spec.total.cores,
        memory_mb=spec.total.memory_mb + AGENT_MB,
        signal_seconds=round(drain_seconds),
        output=str(layout.started_task_managers / f"%x-%j{_OUTPUT}"),
        directory=str(layout.root),
        time_limit=configuration[SLURM_TIME_LIMIT],
        partition=configuration[SLURM_PARTITION],
        account=configuration[SLURM_ACCOUNT],
        qos=configuration[SLURM_QOS],
        gres=configuration[SLURM_GRES],
        constraint=configuration[SLURM_CONSTRAINT],
        extra=extra,
    )
