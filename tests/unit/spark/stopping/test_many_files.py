"""Which files of a savepoint are worked through one by one, and which by several threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from emberkeep.spark.stopping.many_files import work_through

COUNT = 100


class Work:
    """Takes ``seconds(item)`` of its own time for each item, and notes which thread did it."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self._seconds = seconds
        self._now = 0.0
        self.threads: dict[int, str] = {}

    def clock(self) -> float:
        return self._now

    def __call__(self, item: int) -> int:
        self._now += self._seconds(item)
        self.threads[item] = threading.current_thread().name
        return item

    def run(self) -> list[int]:
        results: list[int] = []
        work_through(range(COUNT), self, results.append, self.clock)
        return results

    def in_this_thread(self) -> int:
        return list(self.threads.values()).count(threading.current_thread().name)


def test_quick_files_need_no_threads_although_the_machine_is_busy_now_and_then() -> None:
    work = Work(lambda item: 0.05 if item % 3 == 2 else 0.0001)
    assert work.run() == list(range(COUNT))
    assert work.in_this_thread() == COUNT


def test_slow_files_go_to_threads_after_a_few() -> None:
    work = Work(lambda _: 0.01)
    assert work.run() == list(range(COUNT))
    assert work.in_this_thread() == 3


def test_large_files_go_to_threads_after_the_small_ones() -> None:
    work = Work(lambda item: 0.0001 if item < 50 else 0.01)
    assert work.run() == list(range(COUNT))
    assert work.in_this_thread() == 53


@pytest.mark.parametrize("seconds", [0.0001, 0.01], ids=["quick", "slow"])
@pytest.mark.parametrize("failing", ["work", "done"])
def test_nothing_begins_or_goes_on_after_a_failure(seconds: float, failing: str) -> None:
    work = Work(lambda _: seconds)
    done: list[int] = []

    def failing_work(item: int) -> int:
        if failing == "work" and item == 5:
            raise RuntimeError("full")
        if item > 5:
            time.sleep(0.1)  # that long, all the others could not be done before the failure is seen
        return work(item)

    def note(item: int) -> None:
        if item == 5:
            raise RuntimeError("full")
        done.append(item)

    with pytest.raises(RuntimeError, match="full"):
        work_through(range(COUNT), failing_work, note, work.clock)
    assert done == list(range(5))
    assert len(work.threads) < COUNT
    assert not [thread for thread in threading.enumerate() if "files" in thread.name]


def test_there_may_be_nothing_to_do() -> None:
    work_through((), lambda item: item, lambda _: None)
