"""What every ResourceManagerDriver does. A subclass has a fixture ``platform``, on which it starts task managers."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from emberkeep.base.errors import EmberkeepError, RetryLater
from emberkeep.base.ids import TaskManagerId
from emberkeep.blocklist.model import BlockAction, BlockedNode
from emberkeep.blocklist.places import BlockedPlaces
from emberkeep.slots.resource_driver import NoFreeNode, ResourceManagerDriver

FREE = BlockedPlaces()
NONE: AbstractSet[TaskManagerId] = frozenset()


class Platform(Protocol):
    """Where the tested resource driver starts task managers: two nodes with room for one each."""

    nodes: tuple[str, str]

    def leader(self) -> ResourceManagerDriver:
        """Return the resource driver of one more leader, over the records of the earlier ones."""

    def ends(self, task_manager: TaskManagerId) -> None:
        """Let the task manager's process end by itself."""

    def node_of(self, task_manager: TaskManagerId) -> str:
        """Return the node on which the task manager runs now. It may have waited there for a moment."""

    def running(self, task_manager: TaskManagerId) -> int:
        """Return how many processes run under this id."""

    async def interrupted_start(self) -> TaskManagerId:
        """Let a leader be killed after a start has taken effect, before it has noted that."""

    def cut_off(self) -> AbstractContextManager[None]:
        """Make the platform, or the records of it, unreadable for the time of the context."""


def blocked(*nodes: str) -> BlockedPlaces:
    return BlockedPlaces(
        BlockedNode(id=node, action=BlockAction.MARK_BLOCKED, start_ms=0, causes=("x",)) for node in nodes
    )


async def listed(driver: ResourceManagerDriver) -> dict[TaskManagerId, bool]:
    return {each.id: each.alive for each in await driver.survey()}


@pytest.mark.anyio
@pytest.mark.req("BLK-9")
class ResourceDriverContract:
    async def test_every_leader_lists_what_was_started_and_nothing_else(self, platform: Platform) -> None:
        first = platform.leader()
        assert await listed(first) == {}
        one = (await first.start(FREE, NONE)).id
        assert await listed(first) == {one: True}
        later = platform.leader()
        assert await listed(later) == {one: True}
        other = (await later.start(FREE, {one})).id
        assert other != one
        assert await listed(platform.leader()) == {one: True, other: True}

    async def test_an_id_that_is_free_again_is_used_again(self, platform: Platform) -> None:
        driver = platform.leader()
        one = (await driver.start(FREE, NONE)).id
        other = (await driver.start(FREE, {one})).id
        await driver.end(one)
        assert platform.running(one) == 0
        assert (await driver.start(FREE, {other})).id == one
        assert platform.running(one) == 1

    async def test_nothing_is_started_on_a_blocked_node(self, platform: Platform) -> None:
        first, second = platform.nodes
        driver = platform.leader()
        with pytest.raises(NoFreeNode, match="2 are blocked"):
            await driver.start(blocked(first, second), NONE)
        assert await listed(driver) == {}
        started = (await driver.start(blocked(first), NONE)).id
        assert platform.node_of(started) == second

    async def test_a_start_whose_end_nobody_saw_is_listed_and_not_repeated(self, platform: Platform) -> None:
        started = await platform.interrupted_start()
        driver = platform.leader()
        assert await listed(driver) == {started: True}
        assert (await driver.start(FREE, {started})).id != started
        assert platform.running(started) == 1

    async def test_one_that_has_ended_by_itself_is_listed_until_it_is_ended(self, platform: Platform) -> None:
        driver = platform.leader()
        one = (await driver.start(FREE, NONE)).id
        platform.ends(one)
        assert await listed(driver) == {one: False}
        assert await listed(platform.leader()) == {one: False}
        await driver.end(one)
        assert await listed(driver) == {}
        await driver.end(one)
        await driver.end(TaskManagerId("tm-unheard-of"))
        assert await listed(driver) == {}

    async def test_one_that_has_ended_by_itself_comes_back_under_its_id(self, platform: Platform) -> None:
        driver = platform.leader()
        one = (await driver.start(FREE, NONE)).id
        platform.ends(one)
        assert await listed(driver) == {one: False}
        await driver.revive(one, FREE)
        assert await listed(driver) == {one: True}
        assert await listed(platform.leader()) == {one: True}
        assert platform.running(one) == 1
        await driver.end(one)
        assert platform.running(one) == 0

    async def test_what_cannot_be_read_is_never_taken_for_ended(self, platform: Platform) -> None:
        driver = platform.leader()
        one = (await driver.start(FREE, NONE)).id
        with platform.cut_off():
            with pytest.raises(RetryLater):
                await driver.survey()
            with pytest.raises(EmberkeepError):
                await driver.start(FREE, {one})
        assert await listed(driver) == {one: True}
        assert platform.running(one) == 1

    async def test_while_every_node_is_in_service_none_is_reported(self, platform: Platform) -> None:
        driver = platform.leader()
        assert not await driver.outages()

    async def test_all_task_managers_have_the_capacity_that_the_driver_states(self, platform: Platform) -> None:
        driver = platform.leader()
        assert driver.spec == platform.leader().spec
        assert driver.spec.slots > 0
        assert driver.spec.total.memory_mb > 0
        assert driver.spec.total.cores > 0
