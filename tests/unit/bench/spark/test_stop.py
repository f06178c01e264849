"""What the files of a stop tell."""

from __future__ import annotations

from bench.spark.stop import Stopped, timed


def test_the_batch_that_ran_is_not_counted() -> None:
    stopped = timed(asked=100.0, batch=101.5, drained=101.5, durable=102.0, finished=104.0)
    assert stopped == Stopped(running=1.5, drained=0.0, durable=0.5, finished=2.5)


def test_between_two_batches_it_counts_from_the_request() -> None:
    stopped = timed(asked=100.0, batch=99.0, drained=100.75, durable=101.0, finished=103.0)
    assert stopped == Stopped(running=0.0, drained=0.75, durable=1.0, finished=3.0)
