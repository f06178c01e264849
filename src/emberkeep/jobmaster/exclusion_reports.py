"""Decides which nodes, of those that Spark excludes, a JobMaster reports, so that other jobs avoid them as well.

Spark excludes an executor on which tasks have failed repeatedly (``spark.excludeOnFailure.*``). A node is reported if
Spark excludes all living executors that this job has there, unless it does so on every node of the job: a fault in the
job's own code makes tasks fail on every node, and no node is to blame. (FLIP-224 has a similar source for slow nodes:
speculative execution.)
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from emberkeep.base.ids import ExecutorId, JobId
from emberkeep.blocklist.claims import claim_prefix
from emberkeep.blocklist.model import BlockAction, Blocked, Place, PlaceKind, entry_about
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.slots.pool.held_slot import HeldSlot


class ExclusionReports:
    """Decides which excluded nodes of one job are reported.

    ``max_share``: report no node if more than this share of the job's nodes would then be blocked. ``seconds``: how
    long a reported node stays blocked.
    """

    def __init__(self, job_id: JobId, *, max_share: float, seconds: float) -> None:
        self._job_id = job_id
        self._max_share = max_share
        self._ms = int(seconds * 1000)
        self._excluded: frozenset[ExecutorId] = frozenset()

    def review(
        self, slots: Iterable[HeldSlot], excluded: Set[ExecutorId], blocked: BlockedPlaces, now_ms: int
    ) -> list[Blocked]:
        """Return the entries to report: a node once each time that Spark excludes another executor there.

        ``slots``: all slots that the job holds. ``now_ms``: Unix milliseconds.
        """
        nodes: dict[str, list[HeldSlot]] = {}
        for slot in slots:
            if slot.executor.is_alive:
                nodes.setdefault(slot.task_manager.node_id, []).append(slot)
        news, self._excluded = excluded - self._excluded, frozenset(excluded)
        bad = [node for node, there in nodes.items() if all(slot.executor.id in excluded for slot in there)]
        taken = sum(_is_blocked(there, blocked) for there in nodes.values())
        entries: list[Blocked] = []
        for node in bad:
            there = nodes[node]
            is_news = any(slot.executor.id in news for slot in there) and not _is_blocked(there, blocked)
            if is_news and len(bad) < len(nodes) and taken + len(entries) + 1 <= self._max_share * len(nodes):
                entries.append(self._entry(node, len(there), now_ms))
        return entries

    def _entry(self, node: str, count: int, now_ms: int) -> Blocked:
        cause = f"{claim_prefix(self._job_id)}its tasks fail here, so Spark excludes its {count} executors"
        return entry_about(
            Place(PlaceKind.NODE, node),
            action=BlockAction.MARK_BLOCKED,
            start_ms=now_ms,
            end_ms=now_ms + self._ms,
            causes=(cause,),
        )


def _is_blocked(slots: list[HeldSlot], blocked: BlockedPlaces) -> bool:
    return any(blocked.is_blocked(slot.task_manager.id, slot.task_manager.node_id) for slot in slots)
