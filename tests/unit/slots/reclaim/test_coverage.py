"""A cluster that has fewer slots than are guaranteed says so."""

from __future__ import annotations

import pytest

from emberkeep.slots.reclaim.coverage import PATIENCE, Coverage

pytestmark = pytest.mark.req("RES-5")


def test_a_lasting_lack_is_said_once_each_time() -> None:
    coverage = Coverage(6)
    assert [coverage.review(4, now) for now in (0.0, PATIENCE - 1)] == ["", ""]
    said = "namespaces are guaranteed 6 slots in all (security.quota.guaranteed-slots), and the cluster has 4"
    assert coverage.review(4, PATIENCE) == said
    assert coverage.review(4, PATIENCE + 1) == ""
    assert coverage.review(6, PATIENCE + 2) == ""
    assert coverage.review(4, PATIENCE + 3) == ""
    assert coverage.review(4, 2 * PATIENCE + 3) == said


def test_without_guarantees_nothing_is_said() -> None:
    coverage = Coverage(0)
    assert [coverage.review(0, now) for now in (0.0, 10 * PATIENCE)] == ["", ""]
