"""Pods and nodes, as the API server lists them."""

from __future__ import annotations

from typing import Any

import pytest

from emberkeep.adapters.kubernetes.pods import Node, Phase, Pod, parse_nodes, parse_pod, parse_pods

EXITED = {"exitCode": 137, "reason": "OOMKilled"}


def pod(status: dict[str, Any], node: str = "", **metadata: object) -> Pod:
    spec = {"nodeName": node} if node else {}
    return parse_pod({"metadata": {"name": "c-tm-0", "uid": "u", **metadata}, "spec": spec, "status": status})


def container(name: str, **state: object) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": name, "state": state}]}


@pytest.mark.parametrize(
    ("status", "node", "phase", "story"),
    [
        ({"phase": "Pending"}, "", Phase.QUEUED, ""),
        ({}, "", Phase.QUEUED, ""),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "message": "no room"}]},
            "",
            Phase.QUEUED,
            "no room",
        ),
        ({"phase": "Pending"}, "n1", Phase.RUNNING, ""),
        ({"phase": "Running"}, "n1", Phase.RUNNING, ""),
        ({"phase": "Unknown", "reason": "NodeLost"}, "n1", Phase.RUNNING, "NodeLost"),
        ({"phase": "Succeeded"}, "n1", Phase.ENDED, ""),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "n1", Phase.ENDED, "Evicted: disk"),
        (container("taskmanager", terminated=EXITED), "n1", Phase.ENDED, "OOMKilled: exit code 137"),
        (container("sidecar", terminated=EXITED), "n1", Phase.RUNNING, ""),
        (container("taskmanager", waiting={"reason": "ErrImagePull"}), "n1", Phase.RUNNING, "ErrImagePull"),
    ],
)
def test_the_phase_of_a_pod(status: dict[str, Any], node: str, phase: Phase, story: str) -> None:
    assert pod(status, node) == Pod("c-tm-0", "u", phase, node, story)


def test_only_a_pod_that_the_driver_has_deleted_is_deleted() -> None:
    running = {"phase": "Running"}
    assert pod(running, "n1", deletionTimestamp="t", deletionGracePeriodSeconds=1).is_deleted
    assert not pod(running, "n1", deletionTimestamp="t", deletionGracePeriodSeconds=300).is_deleted
    assert not pod(running, "n1").is_deleted


def test_lists_of_the_api() -> None:
    assert parse_pods({"items": []}) == parse_pods({"items": None}) == ()
    assert [
        each.name for each in parse_pods({"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]})
    ] == [
        "a",
        "b",
    ]
    taints = [
        {"key": "other", "timeAdded": "2026-11-29T08:00:00Z"},
        {"key": "node.kubernetes.io/unschedulable", "timeAdded": "2026-11-29T07:00:00Z"},
    ]
    items = [
        {"metadata": {"name": "n1"}, "spec": {}},
        {"metadata": {"name": "n2"}, "spec": {"unschedulable": True, "taints": taints}},
        {"metadata": {"name": "n3"}, "spec": {"unschedulable": True}},
    ]
    assert parse_nodes({"items": items}) == (Node("n1"), Node("n2", 1795935600000), Node("n3", 0))
