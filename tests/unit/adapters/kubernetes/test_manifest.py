"""The pod of a task manager, made from the cluster's template."""

from __future__ import annotations

import copy
from typing import Any

from emberkeep.adapters.kubernetes.manifest import PodRequest, pod_manifest

REQUEST = PodRequest(
    cluster="c",
    cpus=2,
    memory_mb=1536,
    drain_seconds=300,
    work_directory="/work",
    image="emberkeep:1",
    service_account="jobs",
    downward={"NODE": "spec.nodeName"},
)


def manifest(template: dict[str, Any] | None = None, *avoided: str, image: str = "emberkeep:1") -> dict[str, Any]:
    request = PodRequest(
        cluster="c",
        cpus=2,
        memory_mb=1536,
        drain_seconds=300,
        work_directory="/work",
        image=image,
        service_account="jobs",
        downward={"NODE": "spec.nodeName"},
        template=template or {},
    )
    return pod_manifest(request, "c-tm-0", ["run", "it"], avoided)


def excluded(*nodes: str) -> list[dict[str, object]]:
    return [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]


def terms(pod: dict[str, Any]) -> list[dict[str, Any]]:
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    found: list[dict[str, Any]] = required["nodeSelectorTerms"]
    return found


def test_without_a_template_a_pod_has_what_a_task_manager_needs() -> None:
    assert pod_manifest(REQUEST, "c-tm-0", ["run", "it"], ()) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "c-tm-0", "labels": {"emberkeep.cluster": "c"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 300,
            "automountServiceAccountToken": False,
            "serviceAccountName": "jobs",
            "volumes": [{"name": "emberkeep-work", "emptyDir": {}}],
            "containers": [
                {
                    "name": "taskmanager",
                    "image": "emberkeep:1",
                    "command": ["run", "it"],
                    "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                    "volumeMounts": [{"name": "emberkeep-work", "mountPath": "/work"}],
                    "resources": {"requests": {"cpu": "2", "memory": "1536Mi"}, "limits": {"memory": "1536Mi"}},
                }
            ],
        },
    }


def test_a_template_keeps_what_is_not_the_drivers_and_stays_as_it_is() -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"team": "a", "emberkeep.cluster": "other"}},
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": True,
            "volumes": [{"name": "state", "nfs": {}}, {"name": "emberkeep-work", "ephemeral": {}}],
            "containers": [
                {"name": "sidecar", "image": "logs:1"},
                {
                    "name": "taskmanager",
                    "image": "mine:2",
                    "args": ["old"],
                    "env": [{"name": "NODE", "value": "mine"}, {"name": "A", "value": "b"}],
                    "volumeMounts": [{"name": "state", "mountPath": "/state"}],
                    "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}},
                },
            ],
        },
    }
    before = copy.deepcopy(template)
    pod = manifest(template, image="")
    assert template == before
    assert pod["metadata"]["labels"] == {"team": "a", "emberkeep.cluster": "c"}
    spec = pod["spec"]
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["automountServiceAccountToken"] is True
    assert spec["volumes"] == before["spec"]["volumes"]
    sidecar, container = spec["containers"]
    assert sidecar == {"name": "sidecar", "image": "logs:1"}
    assert container == {
        "name": "taskmanager",
        "image": "mine:2",
        "command": ["run", "it"],
        "env": [
            {"name": "A", "value": "b"},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "volumeMounts": [
            {"name": "state", "mountPath": "/state"},
            {"name": "emberkeep-work", "mountPath": "/work"},
        ],
        "resources": {
            "limits": {"nvidia.com/gpu": 1, "memory": "1536Mi"},
            "requests": {"cpu": "2", "memory": "1536Mi"},
        },
    }


def test_blocked_nodes_are_excluded_from_each_alternative_of_the_template() -> None:
    assert terms(manifest(None, "n2", "n1")) == [{"matchFields": excluded("n1", "n2")}]
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": zones}}
    pod = manifest({"spec": {"affinity": {"nodeAffinity": required, "podAffinity": {"x": 1}}}}, "n1")
    assert terms(pod) == [{**zone, "matchFields": excluded("n1")} for zone in zones]
    assert pod["spec"]["affinity"]["podAffinity"] == {"x": 1}
