"""An asyncio event loop whose time is virtual, and which holds many simulated processes in one thread.

When no callback is ready, the loop jumps to the next timer: nothing really waits, and a run depends only on code and
seed. There is no I/O and there are no threads. Every task belongs to a *scope*, which stands for an operating system
process: tasks and callbacks inherit it through their context. A scope can be frozen (SIGSTOP: none of its callbacks
runs until it is thawed, then all that came due run at once) or killed (SIGKILL: none ever runs again, not even a
``finally``).
"""

from __future__ import annotations

import asyncio
import contextvars
import enum
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from emberkeep.base.system import System
from tests.support.seeded_ids import SeededIds

T = TypeVar("T")

EPOCH_MS = 1_767_225_600_000  # virtual wall clocks start at 2026-01-01T00:00:00Z
DEFAULT_STEP_LIMIT = 20_000_000  # callbacks in one run
INSTANT_LIMIT = 100_000  # callbacks without progress of time; more mean a busy loop
STEPS_BETWEEN_CHECKS = 100
PRUNE_AT = 512  # number of remembered tasks at which finished ones are forgotten
CANCEL_ROUNDS = 10  # how often a task may swallow its cancellation at the end of a run
TURNS_PER_ROUND = 30


class DeadlockError(AssertionError):
    """No callback is ready and no timer is set: the run would wait forever."""


class StepLimitError(AssertionError):
    """More callbacks than allowed: the run does not end, or a busy loop stops time."""


class ScopeState(enum.Enum):
    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


class Scope:
    """Tasks and callbacks of one simulated process. Created by ``VirtualLoop.scope``."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.name = name
        self.state = ScopeState.RUNNING
        self.held: list[asyncio.Handle] | None = None  # callbacks held back while frozen, or forever if killed
        self.clock: VirtualClock | None = None  # of its machine, by which its timers run; None: by the loop
        self._loop = loop
        self.context = contextvars.Context()
        self.context.run(SCOPE.set, self)

    @property
    def alive(self) -> bool:
        return self.state is not ScopeState.DEAD

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """Start a task in this process."""
        return self._loop.create_task(work, name=f"{self.name}: {name}", context=self.context.copy())

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Run a callback in this process."""
        self._loop.call_soon(callback, *arguments, context=self.context)

    def freeze(self) -> None:
        if self.state is ScopeState.RUNNING:
            self.state, self.held = ScopeState.FROZEN, []

    def thaw(self) -> None:
        if self.state is ScopeState.FROZEN:
            self.state = ScopeState.RUNNING
            self._release()

    def kill(self) -> None:
        """End the process. If it calls this itself, its running step continues up to the next await."""
        self.state = ScopeState.DEAD
        if self.held is None:
            self.held = []

    def _release(self) -> None:
        held, self.held = self.held, None
        self._loop.put_ready(held or [])


SCOPE: contextvars.ContextVar[Scope] = contextvars.ContextVar("scope")


class NumberedTask(asyncio.Task[T]):
    """A task whose hash is its own number instead of its address, so that sets of tasks have a fixed order."""

    def __init__(self, number: int, work: Coroutine[Any, Any, T], **arguments: Any) -> None:
        self._number = number  # first: registering the task hashes it
        super().__init__(work, **arguments)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. ``run_until_complete`` raises DeadlockError or StepLimitError instead of hanging."""

    # Attributes of BaseEventLoop, declared here because this class implements the loop's iteration.
    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self, *, step_limit: int = DEFAULT_STEP_LIMIT) -> None:
        super().__init__()
        self._now = 0.0
        self.steps = 0
        self._step_limit = step_limit
        self._steps_checked_at = 0
        self._instant_began = 0
        self._bounded = True
        self.has_rates = False  # some clock gains time, or loses it
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_numbers = 0
        self._scopes: list[Scope] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = PRUNE_AT
        self._task_numbers = 0
        self.set_task_factory(self._make_task)

    # --- scopes -----------------------------------------------------------------------------------------------------

    def scope(self, name: str) -> Scope:
        """Create the scope of a simulated process."""
        scope = Scope(self, name)
        self._scopes.append(scope)
        return scope

    def put_ready(self, handles: list[asyncio.Handle]) -> None:
        """Schedule callbacks that were held back."""
        self._ready.extend(handles)

    def end_all(self) -> list[str]:
        """Cancel every task, also those of frozen and dead scopes, so that no unfinished task is garbage-collected.

        Return the names of tasks that did not end although they were cancelled CANCEL_ROUNDS times.
        """
        self._bounded = False  # the rounds below are a bound
        for scope in self._scopes:
            scope.state = ScopeState.RUNNING
            scope._release()
        return self.run_until_complete(self._cancel_all())

    async def _cancel_all(self) -> list[str]:
        this = asyncio.current_task()
        for _ in range(CANCEL_ROUNDS):
            tasks = [task for task in self._tasks if task is not this and not task.done()]
            if not tasks:
                return []
            for task in tasks:
                task.cancel()
            for _ in range(TURNS_PER_ROUND):
                await asyncio.sleep(0)
        return [task.get_name() for task in self._tasks if task is not this and not task.done()]

    # --- what asyncio asks of a loop --------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]  # the superclass counts arguments by a type that mypy cannot repeat
        self, callback: Callable[..., object], *arguments: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, arguments, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *arguments: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if self.has_rates:
            when = self._when(when, context)
        timer = asyncio.TimerHandle(when, callback, arguments, self, context)
        self._timer_numbers += 1
        # The number keeps the order of timers that are due together, and spares comparing the timers themselves.
        heapq.heappush(self._timers, (when, self._timer_numbers, timer))
        return timer

    def _when(self, when: float, context: contextvars.Context | None) -> float:
        """Return when a timer comes due whose process counts seconds by its own clock."""
        scope = SCOPE.get(None) if context is None else context.get(SCOPE)
        clock = None if scope is None else scope.clock
        return when if clock is None else self._now + (when - self._now) / clock.rate

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is dropped when it comes due."""

    def _run_once(self) -> None:
        """Run callbacks in order until the loop is stopped, jumping in time when none is ready."""
        ready, held = self._ready, SCOPE
        while not self._stopping:
            if not ready:
                self._jump()
                self._count()
                continue
            if self.steps >= self._steps_checked_at:
                self._count()  # before a handle is taken out, which StepLimitError would lose
            handle = ready.popleft()
            if handle._cancelled:
                continue
            self.steps += 1
            scope: Scope | None = handle._context.get(held)  # type: ignore[attr-defined]
            if scope is not None and scope.held is not None:
                scope.held.append(handle)
            else:
                handle._run()

    def _jump(self) -> None:
        """Make the timers that are due next ready."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers:
            raise DeadlockError(f"nothing is ready and no timer is set; waiting: {', '.join(self._waiting())}")
        if timers[0][0] > self._now:
            self._now = timers[0][0]
            self._instant_began = self.steps
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            if not timer._cancelled:
                ready.append(timer)

    def _waiting(self) -> list[str]:
        return [task.get_name() for task in self._tasks if not task.done()]

    def _count(self) -> None:
        self._steps_checked_at = self.steps + STEPS_BETWEEN_CHECKS
        if not self._bounded:
            return
        if self.steps - self._instant_began > INSTANT_LIMIT:
            raise StepLimitError(
                f"{INSTANT_LIMIT} callbacks at {self._now:.3f} s without time going by: something spins"
            )
        if self.steps > self._step_limit:
            raise StepLimitError(
                f"more than {self._step_limit} callbacks, time {self._now:.3f} s: the run does not end"
            )

    def _make_task(self, _: asyncio.AbstractEventLoop, work: Any, **arguments: Any) -> asyncio.Task[Any]:
        self._task_numbers += 1
        task: asyncio.Task[Any] = NumberedTask(self._task_numbers, work, loop=self, **arguments)
        self._tasks.append(task)
        if len(self._tasks) > self._prune_at:
            self._tasks = [known for known in self._tasks if not known.done()]
            self._prune_at = PRUNE_AT + 2 * len(self._tasks)
        return task

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there is no I/O."""

    def _write_to_self(self) -> None:
        """Do nothing: there is no selector to wake up."""

    def call_soon_threadsafe(self, *_: Any, **__: Any) -> asyncio.Handle:  # type: ignore[override]
        raise RuntimeError("a simulated process has no threads: use the loop's own tasks")

    def run_in_executor(self, *_: Any, **__: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        raise RuntimeError("a simulated process has no threads: put blocking work behind a port")


class VirtualClock:
    """Implements Clock in virtual time. Wall clocks differ between nodes and jump; monotonic clocks start anywhere."""

    def __init__(self, loop: VirtualLoop, *, skew_ms: int = 0, monotonic_start: float = 0.0) -> None:
        self._loop = loop
        self._skew_ms = skew_ms
        self._monotonic_start = monotonic_start
        self._drift = 0.0  # seconds gained per second
        self._drifts_since = 0.0
        self.rate = 1.0  # monotonic seconds in a second of the loop
        self._rate_since = 0.0

    def now_ms(self) -> int:
        now = self._loop.time()
        gained = (now - self._drifts_since) * self._drift
        return EPOCH_MS + int((now + gained) * 1000) + self._skew_ms

    def monotonic(self) -> float:
        return self._monotonic_start + (self._loop.time() - self._rate_since) * self.rate

    def jump(self, by_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or a time service does."""
        self._skew_ms += by_ms

    def drift(self, rate: float) -> None:
        """Let the wall clock gain ``rate`` seconds per second from now on, or lose them if negative."""
        now = self._loop.time()
        self._skew_ms += int((now - self._drifts_since) * self._drift * 1000)
        self._drift, self._drifts_since = rate, now

    def run_at(self, rate: float) -> None:
        """Let the monotonic clock count ``rate`` seconds per second from now on, and with it all timers."""
        self._monotonic_start, self._rate_since, self.rate = self.monotonic(), self._loop.time(), rate
        self._loop.has_rates = True


def seeded_random(seed: int | str, purpose: str) -> random.Random:
    """Return a generator for one purpose, so that draws for one purpose do not change those for another."""
    return random.Random(f"{seed}/{purpose}")


def seeded_system(clock: VirtualClock, seed: int | str, process: str) -> System:
    """Return the System of one simulated process. Put the number of its start into ``process``."""
    return System(clock, seeded_random(seed, f"{process}/chance"), SeededIds(seeded_random(seed, f"{process}/ids")))
