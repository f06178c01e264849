"""An API server, its scheduler and its nodes in memory: what the tests of the driver need of them, and no more.

Each node has room for one pod. Nodes start a pod at once, and confirm its end at once unless they are ``silent``.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

from emberkeep.base.errors import Conflict, EmberkeepError

_OVER = ("Succeeded", "Failed")


class FakeKubernetes:
    """``calls``: all that were made. ``outage``: what calls raise.

    ``loses_reply``: what the next creation raises after it has happened.
    """

    def __init__(self, *nodes: str) -> None:
        self.manifests: dict[str, dict[str, Any]] = {}  # pods by name
        self.outage: EmberkeepError | None = None
        self.loses_reply: EmberkeepError | None = None
        self.silent: set[str] = set()  # nodes that do not confirm the end of pods
        self.cordoned: dict[str, str] = {}  # since when, by node
        self.calls: list[str] = []
        self._nodes = nodes
        self._uids = map(str, itertools.count(1))

    def check_pod(self, manifest: dict[str, Any]) -> None:
        return

    def pods(self, label: str) -> dict[str, Any]:
        self._may_fail("list pods")
        key, _, value = label.partition("=")
        found = [pod for pod in self.manifests.values() if pod["metadata"]["labels"].get(key) == value]
        return {"items": copy.deepcopy(found)}

    def nodes(self) -> dict[str, Any]:
        self._may_fail("list nodes")
        return {"items": [self._node(name) for name in self._nodes]}

    def create_pod(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._may_fail("create")
        name = manifest["metadata"]["name"]
        if name in self.manifests:
            raise Conflict(f'pods "{name}" already exists')
        pod = copy.deepcopy(manifest)
        pod["metadata"]["uid"] = next(self._uids)
        pod["status"] = {"phase": "Pending"}
        self.manifests[name] = pod
        answer = copy.deepcopy(pod)
        self._schedule()
        if self.loses_reply is not None:
            error, self.loses_reply = self.loses_reply, None
            raise error
        return answer

    def delete_pod(self, name: str, uid: str, grace_seconds: int) -> None:
        self._may_fail("delete")
        pod = self.manifests.get(name)
        if pod is None or pod["metadata"]["uid"] != uid:
            return
        node = pod["spec"].get("nodeName")
        if node in self.silent and pod["status"]["phase"] not in _OVER:
            pod["metadata"].update(deletionTimestamp="2026-11-29T07:00:00Z", deletionGracePeriodSeconds=grace_seconds)
        else:
            self.vanish(name)

    def vanish(self, name: str) -> None:
        """Remove a pod, as if others had deleted it and its node had confirmed that."""
        del self.manifests[name]
        self._schedule()

    def set_phase(self, name: str, phase: str) -> None:
        self.manifests[name]["status"] = {"phase": phase}

    def _may_fail(self, call: str) -> None:
        self.calls.append(call)
        if self.outage is not None:
            raise self.outage

    def _node(self, name: str) -> dict[str, Any]:
        if name not in self.cordoned:
            return {"metadata": {"name": name}, "spec": {}}
        taint = {"key": "node.kubernetes.io/unschedulable", "timeAdded": self.cordoned[name]}
        return {"metadata": {"name": name}, "spec": {"unschedulable": True, "taints": [taint]}}

    def _schedule(self) -> None:
        for pod in self.manifests.values():
            if "nodeName" in pod["spec"]:
                continue
            taken = {each["spec"].get("nodeName") for each in self.manifests.values()}
            free = [name for name in self._nodes if name not in taken | self.cordoned.keys() | _excluded(pod)]
            if free:
                pod["spec"]["nodeName"] = free[0]
                pod["status"] = {"phase": "Running"}


def _excluded(pod: dict[str, Any]) -> set[str]:
    affinity = pod["spec"].get("affinity")
    if not affinity:
        return set()
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    return {value for field in term["matchFields"] for value in field["values"]}
