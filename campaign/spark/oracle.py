"""The right answers, computed from the input files in plain Python: nothing of Spark, nothing of the jobs' scripts.

A row of an answer is (a, k, c), as each query and batch job writes it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from campaign.spark.rows import Row, in_time

Answer = Counter[tuple[int, str, int]]

WINDOW = 10  # seconds
GAP = 4.5  # seconds between two sessions of a key; event times are whole seconds, so no session ends as one begins
REACH = 2  # seconds after a row in which its partner may come


def stream_answer(kind: str, files: Sequence[list[Row]]) -> Answer:
    """Return what a query of this kind must have written when it is drained. ``files``: the input, in order."""
    if kind == "passed":
        return Counter((row.t, row.k, row.n) for rows in files for row in rows)
    return _STREAMS[kind](in_time(files))


def batch_answer(kind: str, rows: Sequence[Row]) -> Answer:
    """Return what a batch job of this kind must have written."""
    return _BATCHES[kind](rows)


# --- streams ----------------------------------------------------------------------------------------------------------


def _windows(rows: Sequence[Row]) -> Answer:
    counted = Counter((row.t - row.t % WINDOW, row.k) for row in rows)
    return Counter({(begin, k, count): 1 for (begin, k), count in counted.items()})


def _sessions(rows: Sequence[Row]) -> Answer:
    by_key: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        by_key[row.k].append(row.t)
    found: Answer = Counter()
    for k, times in by_key.items():
        times.sort()
        first, last, count = times[0], times[0], 0
        for t in times:
            if t - last > GAP:
                found[first, k, count] += 1
                first, count = t, 0
            last, count = t, count + 1
        found[first, k, count] += 1
    return found


def _joined(rows: Sequence[Row]) -> Answer:
    partners: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        if row.n % 2 == 1:
            partners[row.k, row.t].append(row.n)
    found: Answer = Counter()
    for row in rows:
        if row.n % 2 == 0:
            theirs = [n for later in range(REACH + 1) for n in partners.get((row.k, row.t + later), ())]
            found.update((row.n, row.k, n) for n in theirs or [-1])
    return found


def _distinct(rows: Sequence[Row]) -> Answer:
    return Counter({(row.n, row.k, 1): 1 for row in rows})


def _counted(rows: Sequence[Row]) -> Answer:
    return Counter({(0, k, count): 1 for k, count in Counter(row.k for row in rows).items()})


_STREAMS: Mapping[str, Callable[[Sequence[Row]], Answer]] = {
    "windows": _windows,
    "sessions": _sessions,
    "joined": _joined,
    "distinct": _distinct,
    "counted": _counted,
}

# --- batch jobs -------------------------------------------------------------------------------------------------------


def _shuffled(rows: Sequence[Row]) -> Answer:
    """Each row with the number of rows of its key in its minute."""
    counted = Counter((row.k, row.t // 60) for row in rows)
    return Counter((row.n, row.k, counted[row.k, row.t // 60]) for row in rows)


def _cached(rows: Sequence[Row]) -> Answer:
    """For each remainder of ``n`` by 1 to 6 and each key, the number of rows without a remainder."""
    found: Answer = Counter()
    for divisor in range(1, 7):
        for k, count in Counter(row.k for row in rows if row.n % divisor == 0).items():
            found[divisor, k, count] += 1
    return found


def _committed(rows: Sequence[Row]) -> Answer:
    return Counter((row.t, row.k, row.n) for row in rows)


_BATCHES: Mapping[str, Callable[[Sequence[Row]], Answer]] = {
    "shuffled": _shuffled,
    "cached": _cached,
    "committed": _committed,
}
