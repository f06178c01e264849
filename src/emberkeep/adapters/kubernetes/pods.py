"""Reads pods and nodes as the API server lists them. Pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from emberkeep.adapters.kubernetes.manifest import CONTAINER

END_SECONDS = 1  # of grace, with which the resource driver deletes pods; others leave pods the time to drain
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class Phase(Enum):
    """How far a pod has come."""

    QUEUED = "queued"  # no node was chosen yet
    RUNNING = "running"  # on its node, perhaps still without its image; or its node does not say
    ENDED = "ended"  # its task manager's container has ended


@dataclass(frozen=True)
class Pod:
    """One pod. ``node``: "" while none was chosen. ``story``: why it is in its phase, in Kubernetes' words.

    ``is_deleted``: the resource driver has deleted it, and the node has not confirmed yet that its processes have
    ended. A pod that others have deleted still drains, and is none of these.
    """

    name: str
    uid: str
    phase: Phase
    node: str = ""
    story: str = ""
    is_deleted: bool = False


@dataclass(frozen=True)
class Node:
    """A node. ``cordoned_ms``: since when it is cordoned (Unix ms, 0 if unknown), None if it is not."""

    name: str
    cordoned_ms: int | None = None


def parse_pod(entry: Mapping[str, Any]) -> Pod:
    """Return a pod as one object of the API. What the object lacks is taken for not set."""
    metadata, status = _part(entry, "metadata"), _part(entry, "status")
    node = str(_part(entry, "spec").get("nodeName") or "")
    phase, story = _phase(status, node)
    grace = metadata.get("deletionGracePeriodSeconds")
    return Pod(
        name=str(metadata.get("name", "")),
        uid=str(metadata.get("uid", "")),
        phase=phase,
        node=node,
        story=story,
        is_deleted=bool(metadata.get("deletionTimestamp")) and isinstance(grace, int) and grace <= END_SECONDS,
    )


def parse_pods(answer: Mapping[str, Any]) -> tuple[Pod, ...]:
    """Return the pods of a list."""
    return tuple(parse_pod(each) for each in _items(answer))


def parse_nodes(answer: Mapping[str, Any]) -> tuple[Node, ...]:
    """Return the nodes of a list."""
    return tuple(_node(each) for each in _items(answer))


def _node(entry: Mapping[str, Any]) -> Node:
    name, spec = str(_part(entry, "metadata").get("name", "")), _part(entry, "spec")
    if not spec.get("unschedulable"):
        return Node(name)
    since = [_unix_ms(each.get("timeAdded")) for each in _parts(spec, "taints") if each.get("key") == _UNSCHEDULABLE]
    return Node(name, max(since, default=0))


def _phase(status: Mapping[str, Any], node: str) -> tuple[Phase, str]:
    """Return the phase, and the words for it."""
    states = [_part(each, "state") for each in _parts(status, "containerStatuses") if each.get("name") == CONTAINER]
    state = states[0] if states else {}
    story = _joined(status.get("reason"), status.get("message"))
    if terminated := _part(state, "terminated"):
        code = f"exit code {terminated.get('exitCode')}"
        return Phase.ENDED, _joined(story, terminated.get("reason"), terminated.get("message"), code)
    if status.get("phase") in ("Succeeded", "Failed"):
        return Phase.ENDED, story
    if waiting := _part(state, "waiting"):
        return Phase.RUNNING, _joined(waiting.get("reason"), waiting.get("message"))
    if not node:
        scheduling = [each for each in _parts(status, "conditions") if each.get("type") == "PodScheduled"]
        return Phase.QUEUED, _joined(*(each.get("message") for each in scheduling))
    return Phase.RUNNING, story


def _joined(*texts: Any) -> str:
    return ": ".join(str(text).strip() for text in texts if text)


def _items(answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return list(_parts(answer, "items"))


def _parts(entry: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    for each in entry.get(key) or ():
        if isinstance(each, Mapping):
            yield each


def _part(entry: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = entry.get(key)
    return found if isinstance(found, Mapping) else {}


def _unix_ms(text: Any) -> int:
    try:
        return round(datetime.datetime.fromisoformat(str(text)).timestamp() * 1000)
    except ValueError:
        return 0
