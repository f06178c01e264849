"""The rules of the watchdog, each with the memory that it needs. All times are monotonic seconds.

A rule answers with a *finding*: a text that says what is wrong, "" if all is well, None if it is neither. An alarm is
raised by a text, and cleared by "" alone: between the two bounds of a rule nothing changes, so no alarm flaps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from statistics import median

from emberkeep.watchdog.model import QueryFacts, WatchSettings

Finding = str | None

BATCHES_REMEMBERED = 20
_BATCHES_NEEDED = 3  # before the usual time of a batch is known
_HOLD = 60.0  # seconds for which a count must be low before it counts as low
_LOW_SHARE = 0.9  # of the bound: below it, state is small again


class CommitRule:
    """No micro-batch is committed although the query works.

    A query that waits for data or for its next trigger is well, and so is one that is held between two batches for a
    savepoint. The time that a batch usually takes is the median of the newest ones.
    """

    def __init__(self, settings: WatchSettings) -> None:
        self._settings = settings
        self._durations: deque[float] = deque(maxlen=BATCHES_REMEMBERED)
        self._batch = -1
        self._seen = ""
        self._attempt = 0
        self._commits_again = False  # in this attempt
        self._well_at = 0.0

    def look(self, attempt: int, query: QueryFacts, *, held: bool, now: float) -> Finding:
        """Note what the query does. ``held``: the job is asked for a savepoint, a stop or a move."""
        begins, waits = attempt != self._attempt, query.waits and query.seen != self._seen
        commits = query.batch >= 0 and query.batch != self._batch
        self._attempt, self._seen = attempt, query.seen
        self._commits_again = commits or (self._commits_again and not begins)
        if commits:
            self._batch = query.batch
            self._durations.append(query.duration)
        if begins or commits or waits or held:
            self._well_at = now
            # What a new attempt or a savepoint interrupts is not well yet.
            return "" if commits or waits else None
        silent = now - self._well_at
        return self._text(silent) if silent > self.limit() else None

    def limit(self) -> float:
        """Return for how many seconds the query may work without a commit.

        The first batch of an attempt has a cold JVM, and what arrived since the loss. Judged by the usual time, a
        restart of a slow query would lead to the next one.
        """
        settings = self._settings
        limit = settings.commit_min_time
        if len(self._durations) >= _BATCHES_NEEDED:
            limit = max(limit, settings.commit_factor * median(self._durations))
            if self._commits_again:
                return limit
        return max(limit, settings.commit_first_time)

    def _text(self, silent: float) -> str:
        text = f"no micro-batch was committed for {silent:.0f} s, although the query does not wait for data"
        if len(self._durations) >= _BATCHES_NEEDED:
            text += f"; its batches usually take {median(self._durations):.1f} s"
        return text


class _Growth:
    """One number of a backlog has grown for a time: it was never again as low as at the beginning, and has doubled.

    ``least``: a smaller one is never too large. ``said``: makes a text of two such numbers.
    """

    def __init__(self, growing_for: float, least: float, said: Callable[[float, float], str]) -> None:
        self._growing_for, self._least, self._said = growing_for, least, said
        self._low: float | None = None
        self._low_at = 0.0
        self._peak: float | None = None  # since the growth was found; None while none is

    @property
    def is_found(self) -> bool:
        return self._peak is not None

    def forget(self) -> Finding:
        """Begin again, because no source of the query counts so any longer."""
        self._low = self._peak = None
        return ""

    def look(self, backlog: float, *, now: float) -> Finding:
        if self._peak is not None:
            self._peak = max(self._peak, backlog)
            if backlog > self._peak / 2 and backlog >= self._least / 2:
                return None
            self._peak, self._low = None, None
        if self._low is None or backlog <= self._low:
            self._low, self._low_at = backlog, now
            return ""
        grown = now - self._low_at
        if grown < self._growing_for or backlog < max(self._least, 2 * self._low):
            return None
        self._peak = backlog
        return f"the backlog has grown for {grown:.0f} s, from {self._said(self._low, backlog)}"


class BacklogRule:
    """The backlog has grown for a time, in rows, files, bytes or time: each as the query's sources count.

    What no source says is forgotten once another number is known: the query has other sources now.
    """

    def __init__(self, settings: WatchSettings) -> None:
        growth = partial(_Growth, settings.backlog_growing_for)
        self._rows = growth(settings.backlog_min_rows, lambda low, high: f"{low:,} to {high:,} rows")
        self._files = growth(settings.backlog_min_files, lambda low, high: f"{low:,} to {high:,} files")
        self._size = growth(settings.backlog_min_bytes, lambda low, high: f"{_mebibytes(low)} to {_mebibytes(high)}")
        self._time = growth(settings.backlog_min_time, lambda low, high: f"{low:,.0f} to {high:,.0f} s behind")

    def look(self, query: QueryFacts, *, now: float) -> Finding:
        numbers = (
            (self._rows, query.backlog),
            (self._files, query.files),
            (self._size, query.size),
            (self._time, query.behind),
        )
        if all(number is None for _, number in numbers):
            return None
        findings = [growth.forget() if number is None else growth.look(number, now=now) for growth, number in numbers]
        if texts := [finding for finding in findings if finding]:
            return "; ".join(texts)
        return "" if "" in findings and not any(growth.is_found for growth, _ in numbers) else None


class StateRule:
    """The query's state has more rows, or takes more memory, than permitted."""

    def __init__(self, settings: WatchSettings) -> None:
        self._most_rows, self._most_bytes = settings.state_max_rows, settings.state_max_bytes
        self._low_since: float | None = None

    def look(self, query: QueryFacts, *, now: float) -> Finding:
        bounds = [(query.state_rows, self._most_rows), (query.state_bytes, self._most_bytes)]
        bounds = [(amount, most) for amount, most in bounds if most]
        if not bounds or query.batch < 0:  # before the first batch of an attempt, Spark reports no state
            return None
        if any(amount > most for amount, most in bounds):
            self._low_since = None
            return self._excess(query)
        if any(amount > _LOW_SHARE * most for amount, most in bounds):
            self._low_since = None
            return None
        if self._low_since is None:
            self._low_since = now
        return "" if now - self._low_since >= _HOLD else None

    def _excess(self, query: QueryFacts) -> str:
        found = []
        if 0 < self._most_rows < query.state_rows:
            found.append(f"the state has {query.state_rows:,} rows; watchdog.state.max-rows is {self._most_rows:,}")
        if 0 < self._most_bytes < query.state_bytes:
            taken, most = _mebibytes(query.state_bytes), _mebibytes(self._most_bytes)
            found.append(f"the state takes {taken} of memory; watchdog.state.max-size is {most}")
        return "; ".join(found)


def _mebibytes(number: float) -> str:
    return f"{number / 1024**2:,.1f} MiB"


class RestartRule:
    """The job's driver was restarted more often than permitted within a time window. Moves do not count."""

    def __init__(self, settings: WatchSettings) -> None:
        self._most, self._window = settings.restarts_max, settings.restarts_window
        self._times: deque[float] = deque(maxlen=self._most + 1)

    def restarted(self, now: float) -> None:
        self._times.append(now)

    def restarted_before(self, times: Iterable[float]) -> None:
        """Note restarts that were not known yet, in any order."""
        self._times = deque(sorted([*times, *self._times]), maxlen=self._times.maxlen)

    def look(self, *, now: float) -> Finding:
        while self._times and now - self._times[0] > self._window:
            self._times.popleft()
        restarts = len(self._times)
        if restarts > self._most:
            times = "once" if self._most == 1 else f"{self._most} times"
            return f"the driver was restarted more than {times} within {self._window:.0f} s"
        return "" if restarts <= self._most // 2 else None
