"""The periodic savepoints of one job as a pure state machine: facts go in, decisions come out.

These rules hold at every step:

- At most one savepoint is asked for in each interval, and only while the job is free. After a change of leader, after a
  restart of the driver, and after a pause of any length, at most one is due.
- After a failure the next try comes sooner than the next interval, and later after each further failure.
- Only savepoints that were made periodically are retired, and never the newest.
- A savepoint's files are deleted only after it is durably recorded as retired, and its record is removed only after
  its files are gone.
- The number of savepoints is bounded: no further one is made while too many wait for their deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from emberkeep.jobs.checkpoints import SavepointPointer, retained
from emberkeep.jobs.periodic.model import (
    DeleteFiles,
    Effect,
    Explain,
    JobFacts,
    MakeSavepoint,
    PeriodicSettings,
    PeriodicView,
    WriteRetention,
)
from emberkeep.jobs.periodic.retention import sibling_of, surplus
from emberkeep.lifecycle.locations import is_same_place

SURPLUS_MOST: Final = 20  # savepoints beyond those retained; with more, no further one is made
_FIRST_RETRY: Final = 30.0  # seconds
_SETTLING: Final = 30.0  # seconds after the start of an attempt, in which it begins to work
_SPREAD: Final = 300.0  # seconds over which the savepoints that a new leader finds overdue are spread, at most
_QUERIES_PATIENCE: Final = 300.0  # seconds for which a due job may start slowly, before it is taken for a batch job
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 600.0  # seconds between two tries to delete files

NO_QUERIES: Final = "the job runs no streaming query, so there is nothing to save; savepoints begin with its next query"


class _Stuck(msgspec.Struct, frozen=True):
    """How often the deletion of a savepoint has failed, and why it failed last."""

    failures: int
    reason: str


class PeriodicSavepoints:
    """The periodic savepoints of one job.

    ``savepoints``: those that the job store has. ``began_ms``: when the job was submitted. ``spread``: a number from 0
    to 1 that differs from job to job. ``now``: seconds of a steady clock; ``ms``: Unix milliseconds.
    """

    def __init__(
        self,
        settings: PeriodicSettings,
        savepoints: Iterable[SavepointPointer],
        attempt: int,
        began_ms: int,
        *,
        spread: float,
        now: float,
        ms: int,
    ) -> None:
        self._settings = settings
        self._attempt = attempt
        self._known = sorted((each for each in savepoints if each.periodic), key=_age)
        self._failures = 0
        self._due, self._due_ms = 0.0, 0
        last_ms = max((each.created_ms for each in self._known), default=began_ms)
        # A time in the future is the mistake of another leader's clock.
        left = settings.interval - max(0.0, (ms - last_ms) / 1000)
        self._wait(max(left, spread * min(_SPREAD, settings.interval / 10)), now, ms)
        self._due_alone_since: float | None = None  # since when a savepoint is due and there is no query
        self._impossible_for: frozenset[str] | None = None  # the queries that cannot be saved
        self._problem = ""
        self._explained = ""
        # retention
        self._writing: WriteRetention | None = None
        self._deleting: SavepointPointer | None = None
        self._gone: list[SavepointPointer] = []  # their files are gone, their records are not
        self._delete_failures = 0
        self._delete_at = float("-inf")
        self._stuck: dict[str, _Stuck] = {}  # by path: those whose deletion has failed

    # --- what others read ---------------------------------------------------------------------------------------------

    def view(self) -> PeriodicView | None:
        """Return what users see; None for a job without periodic savepoints."""
        if not self._settings.interval and not self._known:
            return None
        retiring = sum(bool(each.retired_ms) for each in self._known)
        waits = self._impossible_for is not None or not self._settings.interval
        return PeriodicView(
            settings=self._settings,
            due_ms=0 if waits else self._due_ms,
            newest_ms=self._known[-1].created_ms if self._known else 0,
            kept=len(self._known) - retiring,
            retiring=retiring,
            failures=self._failures,
            problem=self._problem or self._delete_problem(),
        )

    def is_retiring(self, path: str) -> bool:
        """True if a job must not start from ``path`` any more, because this savepoint there is being deleted."""
        begun = self._writing.retired if self._writing is not None else ()
        return any(is_same_place(each.path, path) for each in self._known if each.retired_ms or each in begun)

    # --- looks at the job ---------------------------------------------------------------------------------------------

    def looked(self, job: JobFacts, is_needed: Callable[[str], bool], *, now: float, ms: int) -> list[Effect]:
        """Return what must be done now. ``is_needed``: see ``retention.surplus``."""
        if job.attempt != self._attempt:
            self._attempt = job.attempt
            least = now + min(_SETTLING, self._settings.interval)
            if self._due < least:
                self._wait(least - now, now, ms)
        return [*self._retire(is_needed, now, ms), *self._make(job, now, ms)]

    def _make(self, job: JobFacts, now: float, ms: int) -> list[Effect]:
        if not self._settings.interval or now < self._due or not job.is_free:
            self._due_alone_since = None
            return []
        if not job.queries:
            return self._without_queries(now)
        self._due_alone_since = None
        if self._impossible_for == job.queries:
            return []
        self._impossible_for = None
        if len(self._known) >= self._settings.retained + SURPLUS_MOST:
            problem = self._delete_problem()
            return self._explain(
                f"no further savepoint is made: {len(self._known)} periodic savepoints exist, and the oldest could not "
                f"be deleted{': ' + problem if problem else ''}"
            )
        # Count the try as failed until the savepoint is made. So a request that was not even recorded is followed by
        # a pause as well.
        if not self._failures:
            self._problem = ""
        self._failures += 1
        self._wait(self._pause(), now, ms)
        return [MakeSavepoint()]

    def _without_queries(self, now: float) -> list[Effect]:
        if self._due_alone_since is None:
            self._due_alone_since = now
        return self._explain(NO_QUERIES) if now - self._due_alone_since >= _QUERIES_PATIENCE else []

    def _explain(self, reason: str) -> list[Effect]:
        self._problem = reason
        if self._explained == reason:
            return []
        self._explained = reason
        return [Explain(reason)]

    def _pause(self) -> float:
        """Return the seconds until the next try after ``_failures`` failures."""
        return min(self._settings.interval, _FIRST_RETRY * 2.0 ** min(self._failures - 1, 20))

    def _wait(self, seconds: float, now: float, ms: int) -> None:
        self._due, self._due_ms = now + seconds, ms + round(seconds * 1000)

    # --- how a savepoint has ended ------------------------------------------------------------------------------------

    def made(self, savepoint: SavepointPointer, *, now: float, ms: int) -> None:
        """Note a periodic savepoint whose record is durable. Repeating it has no effect."""
        if any(each.path == savepoint.path for each in self._known):
            return
        self._known = sorted([*self._known, savepoint], key=_age)
        self._failures, self._problem, self._explained, self._impossible_for = 0, "", "", None
        self._wait(self._settings.interval, now, ms)

    def failed(self, reason: str, queries: frozenset[str] | None, *, now: float, ms: int) -> list[Effect]:
        """Note a periodic savepoint that failed.

        ``queries``: the job's streaming queries, if no savepoint is possible for as long as it runs these; else None.
        """
        self._failures = max(1, self._failures)  # an earlier leader may have asked for it
        if queries is not None:
            self._impossible_for = queries
            return self._explain(reason)
        self._problem = f"the last try failed: {reason}"
        self._wait(self._pause(), now, ms)
        return []

    # --- retention ----------------------------------------------------------------------------------------------------

    def _retire(self, is_needed: Callable[[str], bool], now: float, ms: int) -> list[Effect]:
        effects: list[Effect] = []
        if self._writing is None:
            retired = surplus(self._known, self._settings, ms, is_needed) if self._settings.interval else []
            if retired or self._gone:
                self._writing = WriteRetention(tuple(retired), tuple(self._gone))
                effects.append(self._writing)
        if self._deleting is None and now >= self._delete_at:
            doomed = [each for each in self._known if each.retired_ms and each not in self._gone]
            waiting = [each for each in doomed if not is_needed(each.path)]
            if waiting:  # one that cannot be deleted does not keep the others
                self._deleting = min(waiting, key=self._failed_deletions)
                effects.append(DeleteFiles(self._deleting, sibling_of(self._deleting, self._known)))
        return effects

    def written(self, retired_ms: int | None) -> None:
        """Note that what ``WriteRetention`` asks for is durable; ``retired_ms`` None: it was certainly not written."""
        writing, self._writing = self._writing, None
        if writing is None or retired_ms is None:
            return
        gone, retired = {each.path for each in writing.gone}, {each.path for each in writing.retired}
        self._gone = [each for each in self._gone if each.path not in gone]
        self._known = [*retained(self._known, retired, gone, retired_ms)]

    def deleted(self, path: str) -> None:
        """Note that the files of a retired savepoint are gone."""
        self._gone += [each for each in self._known if each.path == path and each not in self._gone]
        self._deleting, self._delete_failures = None, 0
        self._stuck.pop(path, None)

    def not_deleted(self, reason: str, *, now: float) -> bool:
        """Note that files of a retired savepoint are or may be left. Return True if users do not know the reason."""
        news = reason not in {each.reason for each in self._stuck.values()}
        if self._deleting is not None:
            failures = self._failed_deletions(self._deleting)
            self._stuck[self._deleting.path] = _Stuck(failures + 1, reason)
        self._deleting = None
        self._delete_at = now + min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(self._delete_failures, 20))
        self._delete_failures += 1
        return news

    def _failed_deletions(self, savepoint: SavepointPointer) -> int:
        found = self._stuck.get(savepoint.path)
        return 0 if found is None else found.failures

    def _delete_problem(self) -> str:
        return next((each.reason for each in self._stuck.values()), "")

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and the simulator."""
        assert all(each.periodic for each in self._known)  # noqa: S101
        assert self._deleting is None or self._deleting.retired_ms  # noqa: S101
        assert all(each.retired_ms for each in self._gone)  # noqa: S101


def _age(savepoint: SavepointPointer) -> tuple[int, str]:
    return savepoint.created_ms, savepoint.path
