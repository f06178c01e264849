"""Reads what ``squeue --json`` prints, of any release from 22.05 on. Pure.

Releases write some values differently: a state is a text or a list of texts, and a number may be an object that says
whether the number is set.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Unavailable

# The base states in which Slurm still has to run the job, or runs it. All others are final.
_QUEUED = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
)
_RUNNING = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})


class Phase(Enum):
    """How far a job has come."""

    QUEUED = "queued"  # it waits for a node
    RUNNING = "running"
    ENDED = "ended"  # its processes have ended, or Slurm is killing them


@dataclass(frozen=True)
class QueuedJob:
    """One job of the queue.

    ``state`` and ``reason`` are Slurm's words. ``node``: where its batch script runs or ran; "" if nowhere.
    """

    job_id: int
    name: str
    phase: Phase
    state: str
    reason: str = ""
    node: str = ""
    user_id: int = -1


def parse_queue(output: bytes) -> tuple[QueuedJob, ...]:
    """Return the jobs in the output of ``squeue --json``. Raises Unavailable (it is not such output)."""
    try:
        # Names have whatever bytes their users have chosen, and some releases list the jobs of all users.
        read = from_json(output.decode("utf-8", "replace"), dict[str, Any])
    except msgspec.DecodeError as error:
        raise _unreadable(str(error)) from None
    if not isinstance(read.get("jobs"), list):
        raise _unreadable('it has no list "jobs"')
    if errors := read.get("errors"):
        raise Unavailable(
            f"`squeue --json` failed: {_in_words(errors)}", hint="check that slurmctld answers (`scontrol ping`)"
        )
    return tuple(_job(each) for each in read["jobs"])


def _job(entry: Any) -> QueuedJob:
    if not isinstance(entry, dict):
        raise _unreadable("a job is not an object")
    job_id, name = _number(entry.get("job_id")), entry.get("name")
    states = _states(entry.get("job_state"))
    if job_id is None or not isinstance(name, str) or not states:
        raise _unreadable(f"a job lacks its job_id, name or job_state: {_shortened(entry)}")
    return QueuedJob(
        job_id=job_id,
        name=name,
        phase=_phase(states),
        state="+".join(states),
        reason=_text(entry.get("state_description")) or _text(entry.get("state_reason")),
        node=_text(entry.get("batch_host")) or _text(entry.get("nodes")),
        user_id=-1 if (user := _number(entry.get("user_id"))) is None else user,
    )


def _phase(states: Iterable[str]) -> Phase:
    """Return the phase. A job that is being killed ("COMPLETING") has ended, whatever else its state says."""
    found = set(states)
    if "COMPLETING" in found:
        return Phase.ENDED
    if found & _RUNNING and not found & {"CONFIGURING"}:
        return Phase.RUNNING
    return Phase.QUEUED if found & _QUEUED else Phase.ENDED


def _states(value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(each.upper() for each in values if isinstance(each, str) and each)


def _number(value: Any) -> int | None:
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value not in ("None", "(null)") else ""


def _in_words(errors: Any) -> str:
    """Return the texts of the errors that the output lists. If slurmctld is away, the exit code may still be 0."""
    texts = (
        [_text(each.get("description")) for each in errors if isinstance(each, dict)]
        if isinstance(errors, list)
        else []
    )
    return "; ".join(filter(None, texts))[:200] or _shortened(errors)


def _shortened(value: Any) -> str:
    return repr(value)[:200]


def _unreadable(why: str) -> Unavailable:
    return Unavailable(
        f"the output of `squeue --json` cannot be used: {why}",
        hint="Slurm 22.05 or newer is needed, with its JSON plugin",
    )
