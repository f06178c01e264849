"""What the blocklist costs: tracker and slot manager at 10,000 nodes, 1,000 of them blocked, against none blocked.

Times are CPU times, as in ``slot_manager``: one thread computes.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import msgspec

from bench.control_plane.slot_manager import Cluster, timed
from bench.load.simulated import ONE_CORE, RUNTIME, SLOTS
from bench.measure import Figure
from bench.plan import Plan
from emberkeep.base.ids import JobId
from emberkeep.blocklist.ends import Ends
from emberkeep.blocklist.follower import BlocklistFollower
from emberkeep.blocklist.model import BlockAction, BlockedNode, Blocklist
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.blocklist.tracker import BlocklistTracker
from emberkeep.slots.model import SlotRequirement

_PAIRS = 200  # single decisions that are timed one by one
_SHARE = 10  # one node of so many is blocked


def measure(plan: Plan) -> list[Figure]:
    """Cost of decisions with and without blocked nodes, of a change of the list, and of the question itself."""
    count = plan.size(10_000, 1_000)
    rounds = [_Round(count) for _ in plan.turns(f"blocklist: {count:,} nodes")]
    blocked = f"{count // _SHARE:,} of {count:,} nodes blocked"

    def figure(name: str, unit: str, value: Callable[[_Round], float]) -> Figure:
        return Figure(name, unit, tuple(value(each) for each in rounds))

    return [
        figure(f"matching all free slots, {blocked}", "slots/s", lambda r: r.matching_blocked),
        figure("the same, none blocked", "slots/s", lambda r: r.matching_free),
        figure(f"one slot decided, {blocked}", "µs", lambda r: r.slot_blocked),
        figure("the same, none blocked", "µs", lambda r: r.slot_free),
        figure(f"the slot manager is told of {count // _SHARE:,} blocked nodes", "ms", lambda r: r.told),
        figure(f"one node more in a list of {count // _SHARE:,}", "ms", lambda r: r.put),
        figure("what has timed out is removed", "ms", lambda r: r.expired),
        figure("is a task manager blocked", "µs", lambda r: r.question),
        figure("a JobMaster takes the list", "ms", lambda r: r.taken),
        figure("the list as JSON", "KiB", lambda r: r.kib),
    ]


class _Round:
    """One repetition."""

    def __init__(self, count: int) -> None:
        cluster, other = Cluster(count), Cluster(count)
        nodes = [info.node_id for info in cluster.infos]
        entries = tuple(_entry(node) for node in nodes[::_SHARE])
        places = BlockedPlaces(entries)
        self.told = timed(lambda: cluster.slots.restrictions.block(places))[0] * 1e3
        self.slot_blocked, self.slot_free = _one_slot(cluster), _one_slot(other)
        self.matching_blocked, self.matching_free = _all_slots(cluster), _all_slots(other)
        self.question = (
            timed(lambda: [places.is_blocked(info.id, info.node_id) for info in cluster.infos])[0] / count * 1e6
        )
        self._tracker(entries)

    def _tracker(self, entries: tuple[BlockedNode, ...]) -> None:
        listed = Blocklist(revision=1, entries=entries)
        self.kib = len(msgspec.json.encode(listed)) / 1024
        tracker = BlocklistTracker(listed)
        self.put = timed(lambda: tracker.put(_entry("one more"), merge=False))[0] * 1e3
        self.expired = timed(lambda: tracker.expire(Ends().over(entries, 1_000, 0.0), 1_000))[0] * 1e3
        self.taken = timed(lambda: BlocklistFollower().take(1, listed))[0] * 1e3


def _entry(node: str) -> BlockedNode:
    return BlockedNode(
        id=node, action=BlockAction.MARK_BLOCKED, start_ms=0, end_ms=1_000_000, causes=("the fan of this rack is loud",)
    )


def _one_slot(cluster: Cluster) -> float:
    """Microseconds of a job's declaration of one slot and of the round that decides it, the median."""
    seconds = []
    for number in range(_PAIRS):
        job_id = JobId(f"{number:032x}")
        cluster.slots.jobs.add(job_id, number, 1)
        requirement = SlotRequirement(count=1, profile=ONE_CORE, runtime=RUNTIME)

        def decide(job_id: JobId = job_id, requirement: SlotRequirement = requirement) -> int:
            cluster.slots.jobs.require(job_id, 1, "127.0.0.1:1000", (requirement,), {})
            return len(cluster.match().slots)

        spent, given = timed(decide)
        if given != 1:
            raise AssertionError(f"{given} slots were given")
        seconds.append(spent)
    return median(seconds) * 1e6


def _all_slots(cluster: Cluster) -> float:
    """Slots per second while one job takes all that are left."""
    job_id = JobId("f" * 32)
    cluster.slots.jobs.add(job_id, _PAIRS, 1)
    count = len(cluster.infos) * SLOTS
    requirement = SlotRequirement(count=count, profile=ONE_CORE, runtime=RUNTIME)
    cluster.slots.jobs.require(job_id, 1, "127.0.0.1:1000", (requirement,), {})
    seconds, matches = timed(cluster.match)
    return len(matches.slots) / seconds
