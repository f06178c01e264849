"""A checkpoint that has gone back is noticed."""

from __future__ import annotations

import pytest

from emberkeep.spark.queries.committed_before import shortfall


@pytest.mark.req("HA-8")
def test_an_older_checkpoint_is_named_with_both_batches() -> None:
    text = shortfall("file:///c", 41, 12)
    assert "batch 41 was committed to the checkpoint file:///c before" in text
    assert "its newest committed batch is 12" in text
    assert "it has no committed batch" in shortfall("file:///c", 0, -1)


@pytest.mark.parametrize("found", [41, 42])
def test_a_checkpoint_that_has_all_is_not_mentioned(found: int) -> None:
    assert shortfall("file:///c", 41, found) == ""
