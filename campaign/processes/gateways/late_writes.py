"""Requests for attempts that are over, and their judgement: a state gateway refuses them all.

An attempt's driver ends within milliseconds once it sees that a newer one has begun, so it seldom asks a gateway for
anything afterwards. Its executors on other nodes may: nothing ends them before their task managers do. The histories
have no Spark in their executors, so they ask themselves, in place of these.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from campaign.processes.gateways.stored import FENCED, StoredEntry

ACKNOWLEDGED = "acknowledged"


class LateWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A request for an attempt after the attempt ``newer`` was admitted. ``asked``: by the history's clock.

    ``what``: for people. ``answer``: ACKNOWLEDGED, the reason of a refusal, or "" if no reply came.
    """

    attempt: int
    newer: int
    what: str
    asked: float
    answer: str


def judge_late_writes(writes: Sequence[LateWrite], found: Sequence[StoredEntry]) -> list[str]:
    """Return the violations of one job. ``found``: what its durable store has in the end."""
    stored = {(each.attempt, each.asked): each.name for each in found}
    violations = []
    for each in writes:
        asked = (
            f"attempt {each.attempt} asked at {each.asked:.3f} to {each.what}, after attempt {each.newer} was admitted"
        )
        if each.answer not in ("", FENCED):
            violations.append(f"{asked}, and was not refused as an attempt that is over: {each.answer}")
        if (each.attempt, each.asked) in stored:
            violations.append(f"{asked}, and that is stored as {stored[each.attempt, each.asked]}")
    return violations
