"""The pod of one task manager, made from the template of its cluster. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

CONTAINER = "taskmanager"
CLUSTER_LABEL = "emberkeep.cluster"
WORK_VOLUME = "emberkeep-work"


@dataclass(frozen=True)
class PodRequest:
    """What every pod of the cluster asks for.

    ``template``: a pod; what the other fields say wins over it. Texts that are empty leave the choice to it.
    ``work_directory``: where a volume that lives as long as the pod is mounted. ``downward``: environment variables
    that get a field of the pod, such as ``spec.nodeName``. ``drain_seconds``: from the order to end it to its kill.
    """

    cluster: str
    cpus: int
    memory_mb: int
    drain_seconds: int
    work_directory: str
    image: str = ""
    service_account: str = ""
    downward: Mapping[str, str] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)


def pod_manifest(request: PodRequest, name: str, command: Sequence[str], avoided: Iterable[str]) -> dict[str, Any]:
    """Return the pod ``name``, which runs ``command`` on none of the ``avoided`` nodes.

    It is never started again in its place (``restartPolicy``): that would hide from the JobManager that its processes
    have ended.
    """
    pod: dict[str, Any] = json.loads(json.dumps(dict(request.template)))
    pod.update(apiVersion="v1", kind="Pod")
    metadata = _section(pod, "metadata")
    metadata["name"] = name
    metadata["labels"] = {**(metadata.get("labels") or {}), CLUSTER_LABEL: request.cluster}
    spec = _section(pod, "spec")
    spec["restartPolicy"] = "Never"
    spec["terminationGracePeriodSeconds"] = request.drain_seconds
    spec.setdefault("automountServiceAccountToken", False)  # the jobs' code runs there
    if request.service_account:
        spec["serviceAccountName"] = request.service_account
    volumes = _list(spec, "volumes")
    if all(each.get("name") != WORK_VOLUME for each in volumes):
        volumes.append({"name": WORK_VOLUME, "emptyDir": {}})
    _fill_container(_container(spec), request, command)
    _avoid(spec, sorted(avoided))
    return pod


def _container(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the task manager's container of the template, or a new one."""
    containers = _list(spec, "containers")
    for each in containers:
        if each.get("name") == CONTAINER:
            return dict_of(each)
    containers.append({"name": CONTAINER})
    return dict_of(containers[-1])


def _fill_container(container: dict[str, Any], request: PodRequest, command: Sequence[str]) -> None:
    container["command"] = list(command)
    container.pop("args", None)
    if request.image:
        container["image"] = request.image
    variables = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in request.downward.items()
    ]
    kept = [each for each in _list(container, "env") if each.get("name") not in request.downward]
    container["env"] = [*kept, *variables]
    _list(container, "volumeMounts").append({"name": WORK_VOLUME, "mountPath": request.work_directory})
    # The slots are sized by these numbers. Cores are not limited: a standstill costs more than a busy neighbour.
    resources, memory = _section(container, "resources"), f"{request.memory_mb}Mi"
    _section(resources, "requests").update(cpu=str(request.cpus), memory=memory)
    _section(resources, "limits").update(memory=memory)


def _avoid(spec: dict[str, Any], nodes: Sequence[str]) -> None:
    """Exclude nodes by their names, from each of the alternatives that the template may have."""
    if not nodes:
        return
    affinity = _section(_section(spec, "affinity"), "nodeAffinity")
    terms = _list(_section(affinity, "requiredDuringSchedulingIgnoredDuringExecution"), "nodeSelectorTerms")
    # Kubernetes permits one name in each of these, and a term needs all of them.
    excluded = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    for term in terms or [{}]:
        if term not in terms:
            terms.append(term)
        _list(term, "matchFields").extend(excluded)


def _section(parent: dict[str, Any], key: str) -> dict[str, Any]:
    """Return the object at ``key``, made if there is none."""
    if not parent.get(key):
        parent[key] = {}
    return dict_of(parent[key])


def _list(parent: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the list at ``key``, made if there is none."""
    if not parent.get(key):
        parent[key] = []
    found: list[dict[str, Any]] = parent[key]
    return found


def dict_of(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = value
    return found
