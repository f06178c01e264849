"""A watchdog's job in a test: settings with round numbers, and facts about one query."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from emberkeep.watchdog.machine import JobWatch
from emberkeep.watchdog.model import Alarm, AlarmKind, Cleared, Effect, QueryFacts, Raised, WatchSettings

SETTINGS = WatchSettings(
    commit_factor=10.0,
    commit_min_time=100.0,
    commit_first_time=500.0,
    backlog_growing_for=300.0,
    backlog_min_rows=1000,
    backlog_min_files=100,
    backlog_min_bytes=1024**2,
    backlog_min_time=60.0,
    state_max_rows=10_000,
    state_max_bytes=0,
    restarts_max=3,
    restarts_window=600.0,
    restarts_stalled=False,
    restart_pause=1000.0,
)


def settings(**changes: object) -> WatchSettings:
    return dataclasses.replace(SETTINGS, **changes)  # type: ignore[arg-type]


@dataclass
class WatchedJob:
    """One job with one query. Each report comes a second after the previous one, unless the test says otherwise."""

    settings: WatchSettings = SETTINGS
    attempt: int = 1
    now: float = 1000.0
    batch: int = 0
    effects: list[Effect] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        self.watch = JobWatch(self.settings, self.attempt)

    def look(
        self,
        seconds: float = 1.0,
        *,
        waits: bool = False,
        held: bool = False,
        again: bool = False,
        duration: float = 2.0,
        state_rows: int = 0,
        state_bytes: int = 0,
        backlog: int | None = None,
        files: int | None = None,
        size: int | None = None,
        behind: float | None = None,
        listed: bool = True,
    ) -> list[Effect]:
        """Report the query. ``again``: the driver could not look at it anew, so this is its previous report."""
        self.now += seconds
        self.looks += not again
        facts = QueryFacts(
            id="q",
            label="delays",
            batch=self.batch,
            duration=duration,
            seen=str(self.looks),
            waits=waits,
            state_rows=state_rows,
            state_bytes=state_bytes,
            backlog=backlog,
            files=files,
            size=size,
            behind=behind,
        )
        queries = (facts,) if listed else ()
        return self._take(self.watch.reported(self.attempt, queries, held=held, now=self.now, ms=int(self.now * 1000)))

    def commit(self, seconds: float = 1.0, *, duration: float = 2.0) -> list[Effect]:
        self.batch += 1
        return self.look(seconds, duration=duration)

    def restart(self, seconds: float = 1.0, *, moved: bool = False) -> list[Effect]:
        self.now += seconds
        self.attempt += 1
        return self._take(self.watch.begun(self.attempt, moved=moved, now=self.now, ms=int(self.now * 1000)))

    def _take(self, effects: list[Effect]) -> list[Effect]:
        self.watch.check_invariants()
        self.effects += effects
        return effects

    def raised(self) -> list[AlarmKind]:
        return [effect.alarm.kind for effect in self.effects if isinstance(effect, Raised)]

    def cleared(self) -> list[AlarmKind]:
        return [effect.alarm.kind for effect in self.effects if isinstance(effect, Cleared)]

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        return self.watch.alarms
