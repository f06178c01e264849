"""The settings for guaranteed slots."""

from __future__ import annotations

import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.jobmanager.resources.reclaim_settings import reclaim_terms
from emberkeep.slots.reclaim.terms import Preemption, ReclaimTerms

pytestmark = pytest.mark.req("RES-5")


def settings(**texts: str) -> Configuration:
    keys = {"guaranteed": "security.quota.guaranteed-slots", "most": "security.quota.slots-per-namespace"}
    keys["preemption"] = "slotmanager.preemption"
    return Configuration().with_texts({keys[name]: text for name, text in texts.items()}, "test")


def test_the_settings_say_what_is_guaranteed_and_who_gives_back() -> None:
    assert reclaim_terms(Configuration()) == ReclaimTerms({}, 0, Preemption.ELASTIC)
    found = reclaim_terms(settings(guaranteed="team-a=4; team-b=2", most="4", preemption="executors"))
    assert found == ReclaimTerms({"team-a": 4, "team-b": 2}, 4, Preemption.EXECUTORS)
    assert (found.total, found.guarantee("team-b"), found.guarantee("")) == (6, 2, 0)


def test_a_namespace_is_not_guaranteed_more_than_it_may_have() -> None:
    with pytest.raises(InvalidInput, match="'team-a' is guaranteed 4 slots, and may have 3 at most") as refused:
        reclaim_terms(settings(guaranteed="team-a=4", most="3"))
    assert refused.value.hint == "lower the guarantee, or raise security.quota.slots-per-namespace"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("team-a", "expected name=value"),
        ("team-a=0", "expected a whole number from 1 to 1000000 for team-a"),
        ("team-a=x", "expected a whole number from 1 to 1000000 for team-a"),
        ("-a=1", "expected name=value"),
        ("a=1;a=2", "a is named twice"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        settings(guaranteed=text)
