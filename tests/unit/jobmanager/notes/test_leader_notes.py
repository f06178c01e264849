"""What a leader notes about itself: its settings compared with the previous leader's, and why it ends."""

from __future__ import annotations

import asyncio

import pytest

from emberkeep.base.errors import Conflict, Fatal
from emberkeep.chronicle.occurrence import Occurrence, What, shortened
from emberkeep.jobmanager.notes.leader_notes import configuration_changes, leader_started, why_ended


def start(**settings: str) -> Occurrence:
    return leader_started("jm:1", "jm", 3, settings)


def test_changed_settings_are_named_with_both_values() -> None:
    changes = configuration_changes(start(a="1", b="2", c="3"), {"a": "1", "b": "5", "d": "4"})
    assert changes is not None
    assert changes.message.endswith("b: 2 → 5; c: 3 → not set; d: not set → 4")
    assert changes.details == {"options": "b c d"}


@pytest.mark.parametrize(
    "before", [None, start(a="1"), Occurrence(what=What.LEADER_STARTED, message="of a release without settings")]
)
def test_nothing_is_noted_without_a_change_or_without_knowledge(before: Occurrence | None) -> None:
    assert configuration_changes(before, {"a": "1"}) is None


def test_a_setting_is_compared_as_it_is_stored() -> None:
    """The chronicle stores details on one line, with single spaces."""
    assert configuration_changes(start(a=shortened("1  2")), {"a": "1  2"}) is None


def test_the_first_setting_is_a_change_too() -> None:
    assert configuration_changes(start(), {"a": "1"}) is not None


@pytest.mark.parametrize(
    ("error", "is_retiring", "reason"),
    [
        (asyncio.CancelledError(), True, "it was shut down"),
        (Conflict("a newer JobManager leads"), False, "a newer JobManager leads"),
        (Fatal("no space"), False, "it failed: no space"),
        (asyncio.CancelledError(), False, "it gave up leadership"),
    ],
)
def test_the_end_of_a_leader_has_a_reason(error: BaseException, is_retiring: bool, reason: str) -> None:
    assert why_ended(error, is_retiring=is_retiring).startswith(reason)
