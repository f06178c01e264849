"""What the chronicle takes from the audit log: quota refusals, bounded, and what administrators do."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.audit.entry import Entry
from emberkeep.chronicle.occurrence import What
from emberkeep.daemons.jobmanager.audit_events import into_chronicle
from emberkeep.jobmanager.notes.audit_notes import noted
from emberkeep.rest.table import ROUTES
from tests.support.chronicle.memory import MemoryChronicle

REFUSED = Entry(
    identity="ci",
    role="submitter",
    login="token",
    address="10.0.0.5",
    action="POST /v1/jobs",
    target={},
    status=429,
    outcome="refused",
    reason="namespace 'team' has 5 jobs",
)


def test_a_quota_s_refusal_says_who_and_why() -> None:
    made = noted(REFUSED)
    assert made is not None
    assert (made.what, made.by, made.message) == (
        What.QUOTA_REFUSED,
        "ci",
        "ci was refused by a quota: namespace 'team' has 5 jobs",
    )


def test_many_refusals_are_a_few_occurrences() -> None:
    clock = [0.0]
    chronicle = MemoryChronicle({}, lambda: 1)
    note = into_chronicle(chronicle, lambda: clock[0])
    for _ in range(1000):
        note(REFUSED)
    clock[0] = 61.0
    note(REFUSED)
    stream = chronicle.stream()
    assert len(stream) == 5
    assert "997 times" in stream[3].message


@pytest.mark.parametrize(
    ("action", "target", "message"),
    [
        ("DELETE /v1/tokens/{tokenid}", {"tokenid": "ci"}, "ana revoked the token ci"),
        ("POST /v1/storage/adopt", {}, "ana let this cluster own its storage"),
        ("POST /v1/taskmanagers/{taskmanagerid}/stop", {"taskmanagerid": "tm-1"}, "ana stopped the task manager tm-1"),
    ],
)
def test_what_administrators_do_is_noted(action: str, target: dict[str, str], message: str) -> None:
    entry = msgspec.structs.replace(
        REFUSED, identity="ana", action=action, target=target, status=200, outcome="done", reason=""
    )
    made = noted(entry)
    assert made is not None
    assert (made.what, made.by, made.message) == (What.ADMINISTERED, "ana", message)
    assert noted(msgspec.structs.replace(entry, status=409, outcome="failed")) is None
    assert action in {f"{route.method} {route.full_path}" for route in ROUTES}


def test_other_changes_are_noted_where_they_are_decided() -> None:
    assert noted(msgspec.structs.replace(REFUSED, action="PATCH /v1/jobs/{jobid}", status=202, outcome="done")) is None
    assert noted(msgspec.structs.replace(REFUSED, status=401)) is None
