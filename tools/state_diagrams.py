"""Draw docs/states.md from the tables that the machines check their steps against."""

import enum
from collections.abc import Iterable, Mapping
from typing import Any

from emberkeep.jobs.transitions import TRANSITIONS as JOB
from emberkeep.leadership.machine import TRANSITIONS as LEADERSHIP
from emberkeep.lifecycle.requests.transitions import TRANSITIONS as REQUEST
from emberkeep.slots.table.slot import TRANSITIONS as SLOT

_HEAD = """\
# States

This page is for those who read a state machine's code, or find a state in a log. The diagrams are
generated from the tables against which the machines check each step; `make format` updates them.

To see the phases of a job in a log:

```console
$ grep RECORDING_RESULT jobmanager.log
```

The states that users see are in [Architecture](architecture.md#states-of-a-job).
"""

_JOB = """\
## A job in the JobManager

Package `jobs`, `transitions.py`. Each arrow names the events that can lead there; events that leave
the phase as it is are left out. A phase is finer than a state: RESTARTING is BACKING_OFF, PLACING or
RECORDING_ATTEMPT after a first attempt.
"""

_REQUEST = """\
## The requests to a job

Package `lifecycle.requests`, `transitions.py`: a savepoint, a suspend, a drain or a move, from the
request until its end is durable. The steps of an OPEN request in the driver are in
`lifecycle/machine.py`. See [savepoints](savepoints.md).
"""

_SLOT = """\
## A slot in a task manager

Package `slots.table`. FREE is a slot without an allocation, which has no record.
"""

_LEADERSHIP = """\
## A JobManager in the election

Package `leadership`. See [several JobManagers](high-availability.md).
"""

_END = """\
## Read next

- [Architecture](architecture.md): who owns which state
- [Decision 21](adr/0021-one-machine-idiom-one-actor-idiom.md): what a machine is
"""


def render() -> str:
    """Return the page."""
    slots = {state: [("", "FREE" if to is None else to.name) for to in targets] for state, targets in SLOT.items()}
    parts = (
        _HEAD,
        _JOB,
        _diagram("NEW", {phase: list(_moves(phase, row)) for phase, row in JOB.items()}),
        _REQUEST,
        _diagram("IDLE", {phase: list(_moves(phase, row)) for phase, row in REQUEST.items()}),
        _SLOT,
        _diagram("FREE", slots, [("FREE", "OFFERED")]),
        _LEADERSHIP,
        _diagram("OUT", {state: [("", to.name) for to in targets] for state, targets in LEADERSHIP.items()}),
        _END,
    )
    return "\n".join(parts)


def _moves(phase: enum.Enum, row: Mapping[type, Iterable[enum.Enum]]) -> Iterable[tuple[str, str]]:
    """Yield the events that lead to each other phase, as one label, and the phase."""
    causes: dict[str, list[str]] = {}
    for event, targets in row.items():
        for target in targets:
            if target is not phase:
                causes.setdefault(target.name, []).append(event.__name__)
    for target_name, events in causes.items():
        yield "<br>".join(sorted(events)), target_name


def _diagram(first: str, moves: Mapping[Any, list[tuple[str, str]]], more: Iterable[tuple[str, str]] = ()) -> str:
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    lines += [f"    {source} --> {target}" for source, target in more]
    for state, targets in moves.items():
        for label, target in sorted(targets, key=lambda move: (move[1], move[0])):
            lines.append(f"    {state.name} --> {target}" + (f": {label}" if label else ""))
        if not targets:
            lines.append(f"    {state.name} --> [*]")
    return "\n".join([*lines, "```", ""])
