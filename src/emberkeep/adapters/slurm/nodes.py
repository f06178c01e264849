"""Reads what ``sinfo -N`` prints about nodes. Pure."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

NODE_FORMAT = "%N|%T|%H|%E"  # the reason is last: it may contain the separator
_DRAIN = ("drain", "drained", "draining", "fail", "failing")  # without the marks that Slurm appends
_MARKS = "*~#!%$@^-+"


@dataclass(frozen=True)
class SlurmNode:
    """A node. ``reason``: why it is out of service, and ``since_ms`` when that was set (Unix ms); "" and 0 if unset."""

    name: str
    state: str
    reason: str = ""
    since_ms: int = 0

    @property
    def is_drained(self) -> bool:
        """True if an administrator has taken the node out of service: Slurm starts nothing new there."""
        return self.state.rstrip(_MARKS) in _DRAIN


def parse_nodes(output: str) -> tuple[SlurmNode, ...]:
    """Return the nodes in the output of ``sinfo -N`` with NODE_FORMAT, each once. Lines of another form are skipped."""
    found: dict[str, SlurmNode] = {}
    for line in output.splitlines():
        name, *rest = line.strip().split("|", 3)
        if not name or len(rest) != 3:
            continue
        state, since, reason = rest
        found[name] = SlurmNode(
            name=name,
            state=state.strip().lower(),
            reason="" if reason.strip().lower() == "none" else " ".join(reason.split()),
            since_ms=_unix_ms(since.strip()),
        )
    return tuple(found.values())


def _unix_ms(text: str) -> int:
    """Return the time of this machine's time zone in Unix milliseconds; 0 if there is none."""
    try:
        return round(datetime.datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except ValueError:
        return 0
