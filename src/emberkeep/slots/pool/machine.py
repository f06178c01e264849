"""The slots that one attempt of a job needs and holds, and the executor in each.

Decides only: events in (see ``events``), effects out; time is an argument in seconds. A slot is held for one executor.
When the executor ends by itself, its slot is given back, and a replacement is requested after a pause. The pause
doubles with each such end in the failure window. Slots lost with their task manager are requested again at once.

A silent task manager does not mean a lost executor: while Spark receives the executor's heartbeats, its slot is kept,
for the orphan timeout at most. A restarted task manager offers the slot again, and the attempt holds it on the new
instance: with its executor if that still runs, else with a new one. A slot that this attempt has released is refused
unless its executor is known to have ended.

Slots on blocked and evacuated places leave when others have taken over; see ``departures``. The number of executors may
change while the application runs; see ``elastic``. Slots are given back to other jobs; see ``reclaiming``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from emberkeep.slots.pool import events as ev
from emberkeep.slots.pool import invariants
from emberkeep.slots.pool.beats import BeatReplies
from emberkeep.slots.pool.departures import Departures
from emberkeep.slots.pool.elastic import Elastic
from emberkeep.slots.pool.events import PoolEffect, PoolEvent
from emberkeep.slots.pool.executor_watch import ExecutorWatch
from emberkeep.slots.pool.limits import PoolLimits
from emberkeep.slots.pool.offers import Offers
from emberkeep.slots.pool.reclaiming import Reclaiming
from emberkeep.slots.pool.silence import Silence
from emberkeep.slots.pool.slot_end import SlotEnd
from emberkeep.slots.pool.state import PoolState
from emberkeep.slots.pool.unmet_need import UnmetNeed


class SlotPool:
    """The slots of one attempt and their executors; see the module. ``state`` changes only in ``handle``.

    The parts of the state machine share it. Each part makes one kind of decision, and may use the parts that come
    before it in this list: the end of a slot, silent task managers, departures from closed places, changes of the
    number of executors, slots given back, executors, offers, replies to heartbeats.
    """

    def __init__(self, limits: PoolLimits) -> None:
        self.state = PoolState(limits)
        self._slot_end = SlotEnd(self.state)
        self._silence = Silence(self.state, self._slot_end)
        self._unmet_need = UnmetNeed(self.state)
        self._departures = Departures(self.state, self._slot_end)
        self._elastic = Elastic(self.state, self._slot_end)
        self._reclaiming = Reclaiming(self.state, self._slot_end, self._departures)
        watch = ExecutorWatch(self.state, self._slot_end, self._departures, self._silence)
        offers = Offers(self.state, self._slot_end, self._departures)
        beats = BeatReplies(self.state, self._slot_end, offers, watch)
        self._handlers: dict[type[Any], Callable[[Any, float], list[PoolEffect]]] = {
            ev.ApplicationStarted: self._application_started,
            ev.ExecutorsDemanded: self._elastic.demanded,
            ev.ApplicationStopping: self._application_stopping,
            ev.ApplicationStopped: self._application_stopped,
            ev.SlotsOffered: offers.slots_offered,
            ev.BeatAnswered: beats.beat_answered,
            ev.ExecutorRuns: watch.executor_runs,
            ev.ExecutorExited: watch.executor_exited,
            ev.SlotGone: watch.slot_gone,
            ev.SparkSaw: watch.spark_saw,
            ev.TaskManagerLost: self._silence.task_manager_lost,
            ev.PlacesBlocked: self._departures.places_blocked,
            ev.CeilingSet: self._reclaiming.ceiling_set,
            ev.ClusterLacks: self._unmet_need.cluster_lacks,
            ev.ReleaseDone: self._release_done,
            ev.Tick: self._tick,
        }

    def handle(self, event: PoolEvent, now: float) -> list[PoolEffect]:
        """Apply one event at ``now`` (seconds) and return the effects."""
        effects = [
            *self._handlers[type(event)](event, now),
            *self._reclaiming.review(now),
            *self._departures.review(now),
            *self._elastic.review(now),
        ]
        self.state.replacements.keep(max(0, self.state.wanted - self.state.staying))
        self._unmet_need.note(now)
        return effects

    def _application_started(self, event: ev.ApplicationStarted, now: float) -> list[PoolEffect]:
        effects = self._application_stopped(ev.ApplicationStopped(), now)
        self.state.requirement, self.state.decommissions = event.requirement, event.decommissions
        self.state.idle_timeout = event.idle_timeout
        return [*effects, ev.StatusChanged()]

    def _application_stopping(self, _: ev.ApplicationStopping, now: float) -> list[PoolEffect]:
        """Keep the slots until the application has stopped, because Spark ends its executors itself.

        From now on, ignore how executors end: an executor that begins to hand over its blocks when the driver no longer
        listens ends with an error.
        """
        self.state.stopping = self.state.requirement is not None
        return [ev.StatusChanged()]

    def _application_stopped(self, _: ev.ApplicationStopped, now: float) -> list[PoolEffect]:
        """Give all slots back and forget the application."""
        pool = self.state
        pool.stopping = True
        effects = [effect for slot in list(pool.held.values()) for effect in self._slot_end.give_back(slot)]
        pool.requirement, pool.stopping, pool.idle_timeout = None, False, None
        pool.replacements.clear()
        pool.missing, pool.missing_blocked = "", False
        pool.was_served = pool.was_put_back = False
        return [*effects, ev.StatusChanged()]

    def _release_done(self, event: ev.ReleaseDone, _: float) -> list[PoolEffect]:
        self.state.releasing.pop(event.allocation_id, None)
        return []

    def _tick(self, _: ev.Tick, now: float) -> list[PoolEffect]:
        effects: list[PoolEffect] = [ev.StatusChanged()] if self.state.replacements.expire(now) else []
        return [*effects, *self._silence.review(now), *self._unmet_need.review(now)]

    def check_invariants(self) -> None:
        """Raise AssertionError naming the broken invariant. For tests and the simulator."""
        invariants.check(self.state)
