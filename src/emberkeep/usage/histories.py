"""The histories of all task managers, and of the cluster's slots. Pure.

That of a task manager that is gone is kept for a while: its next process in the same directory has the same id, and
what was before a loss is what one wants to see after it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from emberkeep.base.compatible import Compatible
from emberkeep.base.ids import TaskManagerId
from emberkeep.usage.history import KeptUsage, Reading, UsageHistory

GONE_KEPT: Final = 100  # histories of task managers that are not registered
GATHERING_MS: Final = 60_000  # in which task managers register with a new leader one by one


class KeptHistories(Compatible, frozen=True, kw_only=True):
    """The histories as they are stored, for the next leader. Those that were registered last are last.

    ``cluster``: that of all slots together; None if the leader was of a release that did not keep it.
    """

    step_ms: int
    task_managers: dict[TaskManagerId, KeptUsage]
    cluster: KeptUsage | None = None


class UsageHistories:
    """One history for each registered task manager, and for the last GONE_KEPT of those that are gone.

    After a change of the leader there are more of those: all that the leader before knew may register again.
    ``cluster``: of all slots together, which cannot be added up later: task managers come and go, and what was worst in
    an earlier sample was not worst at the same moment on all of them.
    """

    def __init__(self, step_ms: int, began_ms: int = 0) -> None:
        """``began_ms``: when this leader's term began."""
        self.step_ms = step_ms
        self._began_ms = began_ms
        self.cluster = UsageHistory(step_ms)
        self._registered: dict[TaskManagerId, UsageHistory] = {}
        self._gone: OrderedDict[TaskManagerId, UsageHistory] = OrderedDict()

    def note(self, task_manager: TaskManagerId, reading: Reading, now_ms: int) -> UsageHistory:
        """Add a reading of a registered task manager, and return its history."""
        history = self._registered.get(task_manager)
        if history is None:
            history = self._gone.pop(task_manager, None) or UsageHistory(self.step_ms)
            self._registered[task_manager] = history
        history.note(reading, now_ms)
        return history

    def note_slots(self, slots: int, taken: int, now_ms: int) -> None:
        """Add how many slots the cluster has now, and how many of them are taken.

        A new leader does not know all of them at once. Nothing is added while it knows fewer than the one before knew.
        """
        if 0 <= now_ms - self._began_ms < GATHERING_MS and slots < self.cluster.newest_slots:
            return
        reading = Reading(cpu_percent=0.0, memory_used_mb=0, disk_free_mb=0, slots=slots, slots_taken=taken)
        self.cluster.note(reading, now_ms)

    def left(self, task_manager: TaskManagerId) -> None:
        """Note that a task manager is no longer registered."""
        history = self._registered.pop(task_manager, None)
        if history is None:
            return
        self._gone[task_manager] = history
        self._forget_oldest()

    def continue_from(self, earlier: KeptHistories) -> None:
        """Put the histories of the leader before in front. Another step makes them useless."""
        if earlier.step_ms != self.step_ms:
            return
        for task_manager, kept in earlier.task_managers.items():
            history = self._registered.get(task_manager) or self._gone.get(task_manager)
            if history is None:
                history = self._gone[task_manager] = UsageHistory(self.step_ms)
            history.continue_from(kept)
        if earlier.cluster is not None:
            self.cluster.continue_from(earlier.cluster)

    def kept(self) -> KeptHistories:
        """Return all histories for the next leader, and forget those that are too many."""
        self._forget_oldest()
        histories = {**self._gone, **self._registered}
        return KeptHistories(
            step_ms=self.step_ms,
            task_managers={key: history.kept() for key, history in histories.items()},
            cluster=self.cluster.kept(),
        )

    def _forget_oldest(self) -> None:
        while len(self._gone) > GONE_KEPT:
            self._gone.popitem(last=False)

    def of(self, task_manager: TaskManagerId) -> UsageHistory:
        """Return the history of a task manager; an empty one if it has not reported yet."""
        found = self._registered.get(task_manager) or self._gone.get(task_manager)
        return found or UsageHistory(self.step_ms)
