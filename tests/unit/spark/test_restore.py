"""Whether Spark's file sink can go on from a savepoint."""

from __future__ import annotations

import pytest

from emberkeep.spark.restore import file_sink_refusal


def test_sink_whose_log_ends_with_the_savepoint_goes_on() -> None:
    assert file_sink_refusal(7, 7) is None
    assert file_sink_refusal(-1, -1) is None, "nothing was processed"


@pytest.mark.parametrize(
    ("newest", "reason"),
    [
        (8, "already has batch 8, but the savepoint was made after batch 7"),
        (6, "has batches up to 6 only"),
        (-1, "is new to Spark's file sink"),
    ],
)
@pytest.mark.req("END-5")
def test_sink_that_would_skip_batches_or_fail_later_is_refused(newest: int, reason: str) -> None:
    refusal = file_sink_refusal(newest, 7)
    assert refusal is not None
    assert reason in refusal[0]
    assert "RollingFileSink" in refusal[1]
