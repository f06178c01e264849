"""Work through the files of a savepoint, several at a time where that is faster.

A small file on a local disk takes less time than threads need to take turns in Python: one thread then copies several
times as many files as eight. Large files, and small ones in storage that answers slowly, go to eight threads.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from emberkeep.spark.script.runner import OWN_THREAD_PREFIX

_THREADS = 8
_QUICK_SECONDS = 0.0003
_MOST_SLOW = 3  # more slow files than quick ones, by so many: other work on the machine makes single ones slow

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def work_through(
    items: Iterable[_Item],
    work: Callable[[_Item], _Result],
    done: Callable[[_Result], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Call ``work`` for each item, the small files first, and ``done`` with each result, in the order of the items.

    ``done`` is called in this thread, ``work`` also in others. The first failure ends this: no call of ``work`` begins
    or goes on after it. Raises what ``work`` and ``done`` raise.
    """
    left = deque(items)
    slow = 0
    while left and slow < _MOST_SLOW:
        begun = clock()
        result = work(left.popleft())
        slow = max(0, slow + (1 if clock() - begun > _QUICK_SECONDS else -1))
        done(result)
    if not left:
        return
    with ThreadPoolExecutor(_THREADS, f"{OWN_THREAD_PREFIX}-files") as threads:
        results = [threads.submit(work, item) for item in left]
        try:
            for each in results:
                done(each.result())
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            raise
