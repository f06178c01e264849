"""The ResourceManagerDriver ``kubernetes``: one pod per task manager.

The pods are the durable record: their names and a label say to which cluster and task manager they belong. So the next
leader finds all of them there, wherever it runs. The API server refuses a second pod of a name, so a start whose
outcome is unknown never leads to two task managers under one id.

All that a task manager has started ends with its pod, and the next pod of that name may run on another node. So each
pod has a working directory of its own, and no task manager process claims to know what became of an earlier pod's
processes.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import structlog
import yaml

from emberkeep.adapters.kubernetes.manifest import CLUSTER_LABEL, PodRequest, pod_manifest
from emberkeep.adapters.kubernetes.pods import END_SECONDS, Node, Phase, Pod, parse_nodes, parse_pod, parse_pods
from emberkeep.base.cluster_identity import cluster_id
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import WORKING_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID
from emberkeep.base.configuration.options.resource_drivers import (
    KUBERNETES_DRAIN_TIME,
    KUBERNETES_IMAGE,
    KUBERNETES_POD_TEMPLATE,
    KUBERNETES_SERVICE_ACCOUNT,
)
from emberkeep.base.configuration.options.task_managers import (
    TASK_MANAGER_HOST,
    TASK_MANAGER_NODE,
)
from emberkeep.base.configuration.sources import environment_variable
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, InvalidInput, RetryLater, UnknownOutcome
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
from emberkeep.daemons.jobmanager.resource_drivers.settings_handed_on import write_settings
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.resource_driver import NodeOutage, StartedTaskManager, TaskManagerSpec

log = structlog.get_logger(__name__)
T = TypeVar("T")

_POD_INTERVAL = 2.0  # seconds between two lists of pods
_NODE_INTERVAL = 10.0  # seconds between two lists of nodes, which are longer
_WORK_DIRECTORY = "/var/lib/emberkeep/taskmanager"
_CLUSTER = re.compile(r"[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?")  # with a number, a name and a label of Kubernetes


class PodApi(Protocol):
    """What ``adapters.kubernetes.api`` offers. All calls block, and raise as described there."""

    def check_pod(self, manifest: dict[str, Any]) -> None: ...

    def pods(self, label: str) -> dict[str, Any]: ...

    def nodes(self) -> dict[str, Any]: ...

    def create_pod(self, manifest: dict[str, Any]) -> dict[str, Any]: ...

    def delete_pod(self, name: str, uid: str, grace_seconds: int) -> None: ...


class KubernetesPods:
    """Implements ResourceManagerDriver. ``job_manager``: where its task managers register, "host:port".

    ``_mine`` has the newest known pods of this cluster, by task manager. One that has ended stays until ``end`` or
    ``revive``, even when its pod was deleted by others.
    """

    def __init__(
        self,
        configuration: Configuration,
        layout: StateLayout,
        job_manager: str,
        api: PodApi,
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Write the settings of the task managers. Raises InvalidInput, Fatal (they cannot be written)."""
        self._now = now
        self._calls = CallPauses(now)
        self._spec = spec_of(configuration, "Kubernetes")
        require_reachable(configuration, job_manager, "pods", "this machine or pod that pods reach")
        cluster = cluster_id(configuration, layout)
        if not _CLUSTER.fullmatch(cluster):
            raise InvalidInput(
                f"the pods cannot be named after the cluster {cluster!r}",
                field=HA_CLUSTER_ID.key,
                hint=f"{HA_CLUSTER_ID.key}: lower-case letters, digits and '-', at most 42",
            )
        self._prefix = f"{cluster}-tm-"
        self._label = f"{CLUSTER_LABEL}={cluster}"
        self._command = AgentCommand(
            "emberkeep.daemons.supervision.kubernetes_pod",
            configuration,
            layout,
            write_settings(layout.started_task_managers, configuration),
            job_manager,
            self._spec,
            configuration[KUBERNETES_DRAIN_TIME],
        )
        self._request = _request(configuration, cluster, self._spec)
        self._api = api
        self._check_template()
        self._mine: dict[TaskManagerId, Pod] = {}
        self._in_use: set[TaskManagerId] = set()  # their names are in use by pods that end
        self._asked_at = float("-inf")  # when the pods were last listed
        self._nodes: tuple[Node, ...] = ()
        self._nodes_asked_at = float("-inf")

    @property
    def spec(self) -> TaskManagerSpec:
        return self._spec

    async def survey(self) -> tuple[StartedTaskManager, ...]:
        await self._look()
        return tuple(
            StartedTaskManager(key, pod.node, alive=pod.phase is not Phase.ENDED, queued=pod.phase is Phase.QUEUED)
            for key, pod in sorted(self._mine.items())
        )

    async def outages(self) -> tuple[NodeOutage, ...]:
        return tuple(
            NodeOutage(node.name, "Kubernetes: cordoned", node.cordoned_ms)
            for node in await self._read_nodes()
            if node.cordoned_ms is not None
        )

    async def start(self, blocked: BlocklistView, taken: AbstractSet[TaskManagerId]) -> StartedTaskManager:
        await self._look()
        key = free_id(taken | self._mine.keys() | self._in_use, blocked)
        await self._create(key, await self._blocked_nodes(blocked, key))
        return StartedTaskManager(key, "", queued=True)

    async def revive(self, task_manager: TaskManagerId, blocked: BlocklistView) -> None:
        avoided = await self._blocked_nodes(blocked, None)
        pod = self._mine.get(task_manager)
        if pod is not None and pod.uid:
            await self._delete(pod)
        await self._create(task_manager, avoided)

    async def end(self, task_manager: TaskManagerId) -> None:
        if task_manager not in self._mine:
            self._asked_at = float("-inf")
            await self._look()
        pod = self._mine.get(task_manager)
        if pod is None:
            return
        if pod.phase is Phase.ENDED or pod.story:
            log.info("the pod of a task manager ends", task_manager=task_manager, node=pod.node, said=pod.story)
        if pod.uid:
            await self._delete(pod)
        self._mine.pop(task_manager, None)
        self._in_use.add(task_manager)

    def _check_template(self) -> None:
        """Raise InvalidInput if the template does not make a pod."""
        try:
            manifest = pod_manifest(self._request, f"{self._prefix}0", ["true"], ())
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidInput(
                f"{KUBERNETES_POD_TEMPLATE.key} does not make a pod: a list or an object is missing in it ({error})",
                field=KUBERNETES_POD_TEMPLATE.key,
                hint="compare the file with `kubectl explain pod.spec`",
            ) from None
        self._api.check_pod(manifest)

    # --- pods ---------------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """List the pods, unless that was done within the interval. Raises RetryLater: the next call asks again."""
        if self._now() - self._asked_at < _POD_INTERVAL:
            return
        self._asked_at = float("-inf")
        pods = parse_pods(await self._call("list pods", self._api.pods, self._label))
        self._asked_at = self._now()
        found = {key: pod for pod in pods if (key := self._task_manager(pod.name)) is not None}
        self._in_use = {key for key, pod in found.items() if pod.is_deleted}
        live = {key: pod for key, pod in found.items() if not pod.is_deleted}
        for key, pod in self._mine.items():
            if key not in found:  # deleted by others, and its node has confirmed that its processes have ended
                live[key] = replace(pod, uid="", phase=Phase.ENDED, story=pod.story or "the pod was deleted")
        self._mine = live

    def _task_manager(self, name: str) -> TaskManagerId | None:
        number = name.removeprefix(self._prefix)
        is_ours = number != name and re.fullmatch(r"0|[1-9][0-9]{0,8}", number)
        return TaskManagerId(f"tm-{number}") if is_ours else None

    async def _create(self, key: TaskManagerId, avoided: tuple[str, ...]) -> None:
        name = f"{self._prefix}{key.removeprefix('tm-')}"
        command = self._command.of(key, {WORKING_DIRECTORY.key: self._request.work_directory})
        manifest = pod_manifest(self._request, name, command, avoided)
        self._asked_at = float("-inf")  # the next survey shows what has happened
        try:
            pod = parse_pod(await asyncio.to_thread(self._api.create_pod, manifest))
        except Conflict as error:
            raise RetryLater(f"the pod {name} exists already: {error.message}") from error
        log.info("created a pod", task_manager=key, pod=name, uid=pod.uid)
        self._mine[key] = pod

    async def _delete(self, pod: Pod) -> None:
        """Delete a pod. Its processes are killed by its node, or have ended with it."""
        self._asked_at = float("-inf")
        try:
            await self._call(f"delete {pod.uid}", self._api.delete_pod, pod.name, pod.uid, END_SECONDS)
        except UnknownOutcome as error:
            raise RetryLater(error.message, hint=error.hint) from error  # a repeated deletion does no harm

    async def _call(self, kind: str, call: Callable[..., T], *arguments: Any) -> T:
        """Call the API server in a thread, but not again while the pause after a failure of that kind lasts."""
        return await self._calls.call(kind, partial(asyncio.to_thread, call, *arguments))

    # --- nodes --------------------------------------------------------------------------------------------------------

    async def _blocked_nodes(self, blocked: BlocklistView, key: TaskManagerId | None) -> tuple[str, ...]:
        """Return the nodes that the pod must avoid. Raises NoFreeNode if these are all, RetryLater."""
        return nodes_to_avoid((node.name for node in await self._read_nodes()), blocked, key, "Kubernetes")

    async def _read_nodes(self) -> tuple[Node, ...]:
        """Return the nodes as they were within the interval. Raises RetryLater."""
        if self._now() - self._nodes_asked_at >= _NODE_INTERVAL:
            self._nodes = parse_nodes(await self._call("list nodes", self._api.nodes))
            self._nodes_asked_at = self._now()
        return self._nodes


def _request(configuration: Configuration, cluster: str, spec: TaskManagerSpec) -> PodRequest:
    """Return what every pod asks for. Raises InvalidInput (the template, or there is no image)."""
    template = _template(configuration[KUBERNETES_POD_TEMPLATE])
    drain_seconds = configuration[KUBERNETES_DRAIN_TIME]
    return PodRequest(
        cluster=cluster,
        cpus=spec.total.cores,
        memory_mb=spec.total.memory_mb + AGENT_MB,
        drain_seconds=round(drain_seconds),
        work_directory=configuration[WORKING_DIRECTORY] or _WORK_DIRECTORY,
        image=configuration[KUBERNETES_IMAGE],
        service_account=configuration[KUBERNETES_SERVICE_ACCOUNT],
        downward={
            environment_variable(TASK_MANAGER_NODE.key): "spec.nodeName",
            environment_variable(TASK_MANAGER_HOST.key): "status.podIP",
        },
        template=template,
    )


def _template(path: str) -> dict[str, Any]:
    """Return the pod in a file; an empty one without a file. Raises InvalidInput."""
    if not path:
        return {}
    key = KUBERNETES_POD_TEMPLATE.key
    try:
        read = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise InvalidInput(
            f"{key}: {path} cannot be used: {error}", field=key, hint="name a file with one pod"
        ) from None
    if not isinstance(read, dict) or read.get("kind", "Pod") != "Pod":
        raise InvalidInput(f"{key}: {path} does not contain a pod", field=key, hint="name a file with one pod")
    return read
