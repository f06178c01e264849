"""What is noted of requests that the audit log records: refusals by quotas, and what administrators do. Pure.

Everything else that a request changes is noted where it is decided.
"""

from __future__ import annotations

from typing import Final

from emberkeep.audit.entry import Entry, Outcome
from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.protocol.rest import API_PREFIX

_TOO_MANY: Final = 429  # HTTP status: over a quota
_DEEDS: Final = {
    f"POST {API_PREFIX}/tokens": "made a token",
    f"DELETE {API_PREFIX}/tokens/{{tokenid}}": "revoked the token {tokenid}",
    f"POST {API_PREFIX}/storage/adopt": "let this cluster own its storage",
    f"POST {API_PREFIX}/storage/purge": "deleted leftovers in the storage",
    f"POST {API_PREFIX}/taskmanagers/{{taskmanagerid}}/stop": "stopped the task manager {taskmanagerid}",
    f"DELETE {API_PREFIX}/cluster": "ended the JobManager",
}


def noted(entry: Entry) -> Occurrence | None:
    """Return what the entry adds to the cluster's stream; None for most entries."""
    times = f"{entry.count} times " if entry.count > 1 else ""
    if entry.status == _TOO_MANY:
        return Occurrence(
            what=What.QUOTA_REFUSED,
            message=f"{entry.identity or entry.address} was {times}refused by a quota: {entry.reason or entry.action}",
            by=entry.identity,
            details={"action": entry.action, "count": str(entry.count)},
        )
    deed = _DEEDS.get(entry.action)
    if deed is None or entry.outcome != Outcome.DONE:
        return None
    return Occurrence(
        what=What.ADMINISTERED,
        message=f"{entry.identity} {_filled(deed, entry.target)}",
        by=entry.identity,
        details=dict(entry.target),
    )


def _filled(deed: str, target: dict[str, str]) -> str:
    for name, value in target.items():
        deed = deed.replace(f"{{{name}}}", value)
    return deed
