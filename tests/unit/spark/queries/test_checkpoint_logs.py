"""Entries of a checkpoint's logs, as Spark 4.3 writes them."""

from __future__ import annotations

import pytest

from emberkeep.lifecycle.manifest import MAX_WATERMARK_MS
from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.queries import checkpoint_logs as logs

OFFSETS = 'v1\n{"batchWatermarkMs":1577836799000,"batchTimestampMs":5,"conf":{"a":"1"}}\n{"logOffset":0}\n-'
COMMIT = "v1\n" + '{"nextBatchWatermarkMs":1577836799000}'
COMMIT_V2 = 'v2\n{"nextBatchWatermarkMs":7,"stateUniqueIds":{"0":[["a61c91fd"],["d43f0874"]]}}'


def test_only_watermark_and_time_change() -> None:
    drained = logs.with_batch_watermark(OFFSETS, MAX_WATERMARK_MS, 9)

    expected = OFFSETS.replace("1577836799000", str(MAX_WATERMARK_MS)).replace('Ms":5', 'Ms":9')
    assert drained == expected
    assert logs.is_drain(drained)
    assert not logs.is_drain(OFFSETS)
    assert logs.with_batch_watermark(drained, 1577836799000, 5) == OFFSETS
    assert logs.offset_texts(drained) == ('{"logOffset":0}', "-")


def test_a_commit_keeps_the_names_of_its_state() -> None:
    assert logs.next_watermark(COMMIT) == 1577836799000
    assert logs.with_next_watermark(COMMIT, 3) == 'v1\n{"nextBatchWatermarkMs":3}'
    assert logs.with_next_watermark(COMMIT_V2, 3) == COMMIT_V2.replace(":7,", ":3,")


@pytest.mark.parametrize("entry", ["", "v9\n{}\n", "v1\nnothing\n{}", "v1\n[]\n", 'v1\n{"batchWatermarkMs":"1"}\n'])
def test_another_form_is_refused(entry: str) -> None:
    with pytest.raises(SparkInternalsMissing, match="offsets log"):
        logs.with_batch_watermark(entry, 1)
    with pytest.raises(SparkInternalsMissing, match="commits log"):
        logs.next_watermark(entry)
