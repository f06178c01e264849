"""The watchdog of one job as a pure state machine: facts go in, alarms come out.

These rules hold at every step:

- At most one alarm of a kind is raised for a query, and one for the job.
- An alarm is raised once and cleared once; it is cleared when all is well, or when what it is about has ended.
- The number of queries that are watched is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emberkeep.watchdog.model import (
    Alarm,
    AlarmKind,
    Cleared,
    Effect,
    QueryFacts,
    Raised,
    RestartAdvised,
    WatchSettings,
)
from emberkeep.watchdog.rules import BacklogRule, CommitRule, Finding, RestartRule, StateRule

QUERIES_WATCHED = 100  # of one job; a script may start any number of queries
_FORGET_AFTER = 300.0  # seconds without the query in a report: it has ended

_Key = tuple[str, AlarmKind]  # id of the query, or "" for the job


@dataclass
class _Query:
    commit: CommitRule
    backlog: BacklogRule
    state: StateRule
    listed_at: float = 0.0


class JobWatch:
    """The watchdog of one job. ``attempt``: the newest attempt when the watch begins; 0 for a new job."""

    def __init__(self, settings: WatchSettings, attempt: int = 0) -> None:
        self._settings = settings
        self._attempt = attempt
        self._taken_over = attempt
        self._restarts = RestartRule(settings)
        self._queries: dict[str, _Query] = {}
        self._alarms: dict[_Key, Alarm] = {}
        self._advised_at = float("-inf")
        self._advised_for = 0  # attempt

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms that are raised now, the oldest first."""
        return tuple(self._alarms.values())

    def begun(self, attempt: int, *, moved: bool, now: float, ms: int) -> list[Effect]:
        """Note a new attempt. ``moved``: the previous driver had to leave its node, which is no failure."""
        if attempt <= self._attempt:
            return []
        restarts = self._attempt > 0 and not moved
        self._attempt = attempt
        if restarts:
            self._restarts.restarted(now)
        return self._judged(("", AlarmKind.RESTARTS), "", self._restarts.look(now=now), ms)

    def noted_before(self, restarts: Mapping[int, float]) -> None:
        """Note restarts under earlier leaders, so that a change of leader hides no storm: by attempt, when it began."""
        self._restarts.restarted_before(at for attempt, at in restarts.items() if attempt <= self._taken_over)

    def reported(self, attempt: int, queries: Iterable[QueryFacts], *, held: bool, now: float, ms: int) -> list[Effect]:
        """Judge the job by a report of the attempt. ``held``: see CommitRule."""
        effects = self._judged(("", AlarmKind.RESTARTS), "", self._restarts.look(now=now), ms)
        for facts in queries:
            watched = self._watched(facts.id)
            if watched is not None:
                watched.listed_at = now
                effects += self._judge_query(attempt, facts, watched, held=held, now=now, ms=ms)
        return effects + self._forget(now)

    def ended(self) -> list[Effect]:
        """Clear all alarms, because the job has ended."""
        self._queries.clear()
        return self._cleared(self._alarms)

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and the simulator."""
        assert len(self._queries) <= QUERIES_WATCHED  # noqa: S101
        assert all(not query or query in self._queries for query, _ in self._alarms)  # noqa: S101

    def _watched(self, query_id: str) -> _Query | None:
        if query_id not in self._queries and len(self._queries) < QUERIES_WATCHED:
            settings = self._settings
            self._queries[query_id] = _Query(CommitRule(settings), BacklogRule(settings), StateRule(settings))
        return self._queries.get(query_id)

    def _judge_query(
        self, attempt: int, facts: QueryFacts, watched: _Query, *, held: bool, now: float, ms: int
    ) -> list[Effect]:
        commit = watched.commit.look(attempt, facts, held=held, now=now)
        effects = [
            effect
            for kind, finding in (
                (AlarmKind.NO_COMMIT, commit),
                (AlarmKind.BACKLOG, watched.backlog.look(facts, now=now)),
                (AlarmKind.STATE, watched.state.look(facts, now=now)),
            )
            for effect in self._judged((facts.id, kind), facts.label, finding, ms)
        ]
        if commit and self._advises(attempt, now):
            self._advised_at, self._advised_for = now, attempt
            effects.append(RestartAdvised(attempt, f"query {facts.label}: {commit}"))
        return effects

    def _judged(self, key: _Key, label: str, finding: Finding, ms: int) -> list[Effect]:
        if finding and key not in self._alarms:
            alarm = self._alarms[key] = Alarm(kind=key[1], query=label, since_ms=ms, message=finding)
            return [Raised(alarm)]
        if finding == "" and key in self._alarms:
            return [Cleared(self._alarms.pop(key))]
        return []

    def _advises(self, attempt: int, now: float) -> bool:
        settings = self._settings
        return (
            settings.restarts_stalled
            and attempt != self._advised_for
            and now - self._advised_at >= settings.restart_pause
        )

    def _forget(self, now: float) -> list[Effect]:
        gone = {query_id for query_id, query in self._queries.items() if now - query.listed_at > _FORGET_AFTER}
        for query_id in gone:
            del self._queries[query_id]
        return self._cleared(key for key in self._alarms if key[0] in gone)

    def _cleared(self, keys: Iterable[_Key]) -> list[Effect]:
        return [Cleared(self._alarms.pop(key)) for key in list(keys)]
