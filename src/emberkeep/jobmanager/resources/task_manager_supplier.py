"""Starts task managers through a resource driver if the registered ones do not suffice, and stops idle ones.

A cycle reads the state (what the resource driver lists, what is registered, what is missing), decides once
(``slots.task_manager_supply``) and carries the decision out. It keeps no state that the next cycle, or the next leader,
could not determine again.

No epoch protects a platform from a former leader: whoever may end a pod ends it. So the job store confirms the
leadership before each change there. A leader that was frozen would otherwise take a task manager that has registered
with its successor for one that never registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from emberkeep.base.configuration.options.jobs import CANCELLATION_TIMEOUT
from emberkeep.base.configuration.options.resource_drivers import (
    IDLE_TIMEOUT,
    MAX_SLOTS,
    MAX_START_FAILURES,
    MIN_SLOTS,
    REGISTRATION_TIMEOUT,
    START_RETRY_INTERVAL,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, EmberkeepError, UnknownOutcome
from emberkeep.base.ids import TaskManagerId
from emberkeep.chronicle.occurrence import Occurrence, What, shortened
from emberkeep.jobmanager.nodes.platform_outages import PlatformOutages
from emberkeep.jobmanager.resources.resource_manager import ResourceManager
from emberkeep.jobmanager.term import Term
from emberkeep.slots.blocked import BlocklistView
from emberkeep.slots.resource_driver import NoFreeNode, ResourceManagerDriver, StartedTaskManager
from emberkeep.slots.supply import Supply
from emberkeep.slots.task_manager_supply import SupplyLimits, SupplyPlan, TaskManagerSupply

CYCLE = 0.5  # seconds between two cycles
PROBLEM_SHOWN = 60.0  # seconds after a failure for which it counts as a problem
STOP_MARGIN = 60.0  # seconds that a task manager may take to stop, beyond the grace of its processes
_END = "end "  # begins the kinds of warnings about task managers that cannot be ended

log = structlog.get_logger(__name__)


def supply_limits(configuration: Configuration) -> SupplyLimits:
    """Return the configured limits."""
    return SupplyLimits(
        min_slots=configuration[MIN_SLOTS],
        max_slots=configuration[MAX_SLOTS],
        idle_timeout=configuration[IDLE_TIMEOUT],
        registration_timeout=configuration[REGISTRATION_TIMEOUT],
        stop_timeout=configuration[CANCELLATION_TIMEOUT] + STOP_MARGIN,
        retry_interval=configuration[START_RETRY_INTERVAL],
        max_failures=configuration[MAX_START_FAILURES],
    )


class TaskManagerSupplier:
    """One background task. ``run`` it concurrently with the ResourceManager."""

    def __init__(
        self,
        configuration: Configuration,
        driver: ResourceManagerDriver,
        resources: ResourceManager,
        outages: PlatformOutages,
        term: Term,
    ) -> None:
        self._driver = driver
        self._outages = outages
        self._authority = term.authority
        self._chronicle = term.chronicle
        self._resources = resources
        self._clock = term.clock
        self._supply = TaskManagerSupply(supply_limits(configuration), driver.spec)
        self._warned: dict[str, str] = {}  # the newest warning of each kind
        self._problem = ""
        self._problem_at = float("-inf")
        self._problem_since_ms = 0

    @property
    def problem_since_ms(self) -> int:
        """Since when there is a problem, the same or others without a minute in between; 0 if there is none."""
        return self._problem_since_ms if self.problem else 0

    @property
    def problem(self) -> str:
        """What could not be done with task managers within the last minute; "" if all could."""
        return self._problem if self._clock.now() - self._problem_at < PROBLEM_SHOWN else ""

    async def run(self) -> None:
        """Run cycles until cancelled. External errors are logged; the next cycle sees their effects."""
        async with asyncio.TaskGroup() as stops:
            while True:
                try:
                    await self._cycle(stops)
                except Conflict:  # another JobManager is the leader
                    self._authority.suspect()  # which ends this one
                except EmberkeepError as error:
                    self._warn("cycle", f"cannot start or end task managers: {error}")
                else:
                    self._warned.pop("cycle", None)
                await asyncio.sleep(CYCLE)

    async def _cycle(self, stops: asyncio.TaskGroup) -> None:
        """``stops``: the requests to stop, at most one to each task manager. The next cycle does not wait for them."""
        if self._authority.in_doubt:
            return
        started = await self._driver.survey()
        await self._review_outages(started)
        supply = await self._resources.supply()
        if self._supply.changes_platform(started, supply, self._clock.now()) and not await self._authority.confirmed():
            return  # the next cycle decides the same once the leadership is certain
        plan = self._supply.decide(started, supply, self._clock.now())
        for key in plan.stops:
            stops.create_task(self._stop(key), name=f"stop {key}")
        counted = self._supply.unended
        try:
            unended = await self._end(plan, started)
            await self._revive(plan, supply.blocked)
        except EmberkeepError:  # the leadership is in doubt
            self._supply.interrupted()
            raise
        if unended <= counted:  # others count for the maximum from the next plan on
            await self._start(plan, started, supply, unended)

    async def _require_leadership(self) -> None:
        """Raise Conflict if another JobManager is the leader, RetryLater if nobody can tell now."""
        if not await self._authority.confirmed():
            self._authority.check()

    async def _review_outages(self, started: tuple[StartedTaskManager, ...]) -> None:
        """Block and unblock nodes as the platform says. The cycle continues if that is unknown now."""
        try:
            await self._outages.review(started)
        except EmberkeepError as error:
            self._warn("outages", f"cannot read which nodes are out of service: {error}")

    async def _end(self, plan: SupplyPlan, started: tuple[StartedTaskManager, ...]) -> frozenset[TaskManagerId]:
        """End task managers. Return those that could not be ended: the rest of the plan does not wait for them."""
        alive = {each.id for each in started if each.alive}
        kinds = {key: f"{_END}{key}" for key in plan.ends}
        for gone in [kind for kind in self._warned if kind.startswith(_END) and kind not in kinds.values()]:
            del self._warned[gone]  # it has ended by itself, or need not end any longer
        unended = []
        for key, kind in kinds.items():
            await self._require_leadership()
            if key in alive and kind not in self._warned:
                log.warning("killing a task manager: it did not register, or did not end, in time", task_manager=key)
            try:
                await self._driver.end(key)
            except EmberkeepError as error:
                unended.append(key)
                self._supply.end_failed(key)
                self._warn(kind, f"cannot end task manager {key}: {error}")
            else:
                self._warned.pop(kind, None)
                self._supply.ended(key)
        return frozenset(unended)

    async def _revive(self, plan: SupplyPlan, blocked: BlocklistView) -> None:
        for key in plan.revives:
            await self._tried(lambda key=key: self._revive_one(key, blocked))  # type: ignore[misc]

    async def _revive_one(self, key: TaskManagerId, blocked: BlocklistView) -> None:
        await self._driver.revive(key, blocked)
        log.warning("a task manager had exited while jobs use it, it is started again", task_manager=key)

    async def _start(
        self,
        plan: SupplyPlan,
        started: tuple[StartedTaskManager, ...],
        supply: Supply,
        unended: frozenset[TaskManagerId],
    ) -> None:
        taken = {each.id for each in started} - set(plan.ends) | {each.id for each in supply.standing} | unended
        for _ in range(plan.starts):
            made = await self._tried(lambda: self._driver.start(supply.blocked, taken))
            if made is None:
                return
            self._warned.pop("start", None)
            taken.add(made.id)
            log.info("started task manager", task_manager=made.id, node=made.node_id)

    async def _tried(self, work: Callable[[], Awaitable[StartedTaskManager | None]]) -> StartedTaskManager | None:
        await self._require_leadership()
        try:
            return await work()
        except NoFreeNode as error:
            self._warn("start", f"more task managers are needed, but {error}", is_problem=False)
        except EmberkeepError as error:
            self._supply.start_failed(self._clock.now())
            self._warn("start", f"cannot start a task manager: {error}")
        return None

    async def _stop(self, key: TaskManagerId) -> None:
        try:
            if await self._resources.ends.retire(key):
                log.info("task manager is idle, asked it to end", task_manager=key)
            else:
                self._supply.stop_failed(key)
        except Absent:
            return  # it has ended
        except EmberkeepError as error:
            if isinstance(error, UnknownOutcome):
                self._supply.stop_unanswered(key)
            else:
                self._supply.stop_failed(key)
            self._warn("stop", f"cannot end task manager {key}: {error}")

    def _warn(self, kind: str, text: str, *, is_problem: bool = True) -> None:
        """Log a warning, and note a problem for users, unless it repeats the last one of its kind."""
        if is_problem:
            self._problem_since_ms = self.problem_since_ms or self._clock.now_ms()
            self._problem, self._problem_at = text, self._clock.now()
        if text == self._warned.get(kind):
            return
        self._warned[kind] = text
        log.warning(text)
        if is_problem:
            self._chronicle.note(Occurrence(what=What.TASK_MANAGER_NOT_STARTED, message=shortened(text)))
