"""The order of calls to user functions, for every kind of end, with what goes wrong in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest

from emberkeep.api import RichFunction, WithGracefulShutdown
from emberkeep.api.registry import REGISTRY, Registry, takes_part
from emberkeep.base.errors import Fatal
from emberkeep.lifecycle.errors import UserFunctionFailed
from emberkeep.lifecycle.machine import PLANS, Step
from emberkeep.lifecycle.model import Procedure
from emberkeep.spark.errors import SparkUnavailable
from emberkeep.spark.functions import calls as function_calls
from emberkeep.spark.functions.executor_functions import ExecutorFunctions
from emberkeep.spark.functions.user_functions import DriverFunctions
from emberkeep.spark.functions.worker_port import WorkerPort

_DEADLINE_SECONDS = 240.0

# END-3; `open` and `initialize_state` come before.
FINITE = ["prepare_to_shutdown", "shutdown", "close"]
DRAIN = ["prepare_to_shutdown", "snapshot_state", "notify_checkpoint_complete", "shutdown", "close"]
SUSPEND = ["snapshot_state", "notify_checkpoint_complete", "close"]
CANCEL = ["close"]


class Traced(RichFunction):
    """Writes down what it is called with; ``failing``: the method that fails once."""

    def __init__(self, failing: str = "", state: Any = None) -> None:
        self.calls: list[str] = []
        self.given: Any = None
        self._failing = failing
        self._state = state

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self._failing:
            self._failing = ""
            raise OSError("no space left")

    def open(self) -> None:
        self._called("open")

    def close(self) -> None:
        self._called("close")

    def prepare_to_shutdown(self) -> None:
        self._called("prepare_to_shutdown")

    def shutdown(self) -> None:
        self._called("shutdown")

    def snapshot_state(self) -> Any:
        self._called("snapshot_state")
        return self._state

    def initialize_state(self, state: Any) -> None:
        self._called("initialize_state")
        self.given = state

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._called("notify_checkpoint_complete")


class OnlyClose:
    def __init__(self) -> None:
        self.closed = 0

    def close(self) -> None:
        self.closed += 1


class Hanging(Traced):
    """``hanging``: the method that does not return before ``released``."""

    def __init__(self, hanging: str) -> None:
        super().__init__()
        self._hanging = hanging
        self.hangs, self.released = threading.Event(), threading.Event()

    def _called(self, name: str) -> None:
        super()._called(name)
        if name == self._hanging:
            self.hangs.set()
            assert self.released.wait(_DEADLINE_SECONDS)


def functions_of(
    *functions: Any,
    restored: Callable[[], Mapping[str, bytes]] = dict,
    stopped: Callable[[], bool] = lambda: False,
    seconds: float = _DEADLINE_SECONDS,
) -> DriverFunctions:
    registry = Registry()
    executors = ExecutorFunctions(WorkerPort("127.0.0.1", 1), restored, seconds)
    driver = DriverFunctions(registry, restored, executors, stopped, seconds=seconds)
    driver.follow()
    for function in functions:
        registry.add(function)
    return driver


def carry_out(driver: DriverFunctions, procedure: Procedure) -> dict[str, bytes]:
    """The steps of the procedure that concern functions, in the coordinator's order; then the process ends."""
    states: dict[str, bytes] = {}

    def snapshot() -> None:
        states.update(driver.snapshot_state(7))

    calls: dict[Step, Callable[[], None]] = {
        Step.PREPARE_TO_SHUTDOWN: driver.prepare_to_shutdown,
        Step.SNAPSHOT_STATE: snapshot,
        Step.NOTIFY_COMPLETE: lambda: driver.notify_checkpoint_complete(7),
        Step.SHUTDOWN: driver.shutdown,
    }
    for step in PLANS[procedure]:
        if step in calls:
            calls[step]()
    if procedure.ends_attempt:
        driver.close()
    return states


@pytest.mark.req("END-3")
@pytest.mark.req("END-1")
@pytest.mark.parametrize(("procedure", "order"), [(Procedure.DRAIN, DRAIN), (Procedure.SUSPEND, SUSPEND)])
def test_calls_of_a_stop_are_those_of_the_table(procedure: Procedure, order: list[str]) -> None:
    first, second = Traced(), Traced()
    carry_out(functions_of(first, second), procedure)
    assert first.calls == second.calls == ["open", *order]


@pytest.mark.req("END-3")
def test_a_script_that_ends_well_is_a_finite_end_and_any_other_closes_only() -> None:
    ended, cancelled = Traced(), Traced()
    driver = functions_of(ended)
    driver.sources_ended()
    driver.sources_ended()  # Spark was stopped, then the script ended
    driver.close()
    assert ended.calls == ["open", *FINITE]
    functions_of(cancelled).close()
    assert cancelled.calls == ["open", *CANCEL]


def test_a_job_that_was_stopped_has_no_end_of_its_sources() -> None:
    function = Traced()
    driver = functions_of(function, stopped=lambda: True)
    driver.sources_ended()
    assert function.calls == ["open"]
    driver.close()
    assert function.calls == ["open", "close"]


@pytest.mark.req("END-1", "END-3")
def test_a_script_that_is_cancelled_or_fails_has_no_end_of_its_sources() -> None:
    """However it comes to stopping Spark, or to the end of a function's block."""
    function, managed = Traced(), Traced()
    driver = functions_of(function, managed)
    driver.ended_badly()
    driver.sources_ended()
    assert function.calls == ["open"]
    driver.close()
    assert function.calls == ["open", "close"]


@pytest.mark.req("END-1", "END-3")
def test_a_cancellation_during_the_end_of_the_sources_lets_nothing_become_final() -> None:
    function = Traced()
    driver = functions_of(function)
    function.prepare_to_shutdown = driver.ended_badly  # type: ignore[method-assign]
    driver.sources_ended()
    driver.close()
    assert function.calls == ["open", "close"]


@pytest.mark.req("END-1")
def test_a_block_that_a_cancelled_script_leaves_without_an_error_is_no_good_end() -> None:
    function = Traced()
    driver = functions_of()
    REGISTRY.follow(lambda _: None, driver.has_other_end)
    try:
        with function:
            driver.ended_badly()
    finally:
        REGISTRY.follow(lambda _: None, lambda _: False)
    assert function.calls == ["open", "close"]


@pytest.mark.req("END-6")
@pytest.mark.parametrize("failing", ["prepare_to_shutdown", "snapshot_state"])
def test_a_failure_says_what_failed_and_the_job_may_go_on(failing: str) -> None:
    healthy, sick = Traced(), Traced(failing)
    driver = functions_of(healthy, sick)
    with pytest.raises(UserFunctionFailed, match=f"{failing} of .*Traced#2 in the driver: OSError: no space left"):
        carry_out(driver, Procedure.DRAIN)
    assert "shutdown" not in healthy.calls + sick.calls
    assert "close" not in healthy.calls + sick.calls
    before = len(sick.calls)
    carry_out(driver, Procedure.DRAIN)  # asked again
    assert sick.calls[before:] == DRAIN


@pytest.mark.req("END-2")
def test_a_function_that_cannot_be_closed_keeps_no_other_open() -> None:
    first, second = Traced(), Traced("close")
    functions_of(first, second).close()
    assert first.calls[-1] == second.calls[-1] == "close"


@pytest.mark.req("END-3", "END-6")
def test_a_function_that_hangs_fails_the_stop_and_is_not_called_twice_at_once() -> None:
    healthy, sick = Traced(), Hanging("snapshot_state")
    driver = functions_of(healthy, sick, seconds=0.2)
    with pytest.raises(
        UserFunctionFailed, match=r"snapshot_state of .*Hanging in the driver: did not return within 0.2 s"
    ):
        carry_out(driver, Procedure.SUSPEND)
    with pytest.raises(
        UserFunctionFailed, match=r"prepare_to_shutdown of .*Hanging .* previous call, snapshot_state, has not"
    ):
        carry_out(driver, Procedure.DRAIN)
    assert sick.calls == ["open", "snapshot_state"]
    sick.released.set()
    driver._calls._newest[f"{Hanging.__module__}.Hanging"].result.result(_DEADLINE_SECONDS)
    before = len(sick.calls)
    carry_out(driver, Procedure.DRAIN)  # asked again
    assert sick.calls[before:] == healthy.calls[-len(DRAIN) :] == DRAIN


@pytest.mark.req("END-2", "END-3")
@pytest.mark.parametrize("hanging", ["open", "prepare_to_shutdown", "shutdown", "close"])
def test_nothing_that_hangs_keeps_functions_open(hanging: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_calls, "_PATIENCE_SECONDS", 0.1)
    first, sick, last = Traced(), Hanging(hanging), Traced()
    driver = functions_of(first, last, seconds=1.0)

    def live() -> None:
        with suppress(UserFunctionFailed):
            driver._registry.add(sick)
            driver.sources_ended()

    thread = threading.Thread(target=live)
    thread.start()
    assert sick.hangs.wait(_DEADLINE_SECONDS)
    driver.ended_badly()
    driver.close()
    assert [function.calls.count("close") for function in (first, sick, last)] == [1, 1, 1]
    sick.released.set()
    thread.join(_DEADLINE_SECONDS)
    assert not thread.is_alive()
    if hanging == "prepare_to_shutdown":
        assert "shutdown" not in first.calls + sick.calls + last.calls, "it was cancelled meanwhile"


@pytest.mark.req("END-3")
def test_who_came_after_the_snapshot_is_not_told_that_it_is_durable() -> None:
    old, new = Traced(), Traced()
    driver = functions_of(old)
    driver.snapshot_state(7)
    driver._registry.add(new)
    driver.notify_checkpoint_complete(7)
    assert (old.calls[1:], new.calls[1:]) == (["snapshot_state", "notify_checkpoint_complete"], [])


@pytest.mark.req("END-10")
def test_a_class_with_close_only_is_closed_at_every_end() -> None:
    for end in ("sources_ended", "close"):
        function = OnlyClose()
        getattr(functions_of(function), end)()
        assert function.closed == 1
    function = OnlyClose()
    carry_out(functions_of(function), Procedure.DRAIN)
    assert function.closed == 1


@pytest.mark.parametrize("state", [b"\x00bytes", {"offset": 41, "names": ["a"]}, 0, "text"])
def test_state_comes_back_before_open(state: Any) -> None:
    states = carry_out(functions_of(Traced(state=state)), Procedure.SUSPEND)
    function = Traced()
    functions_of(function, restored=lambda: states)
    assert function.calls == ["initialize_state", "open"]
    assert function.given == state


def test_no_state_is_nothing_to_restore() -> None:
    assert carry_out(functions_of(Traced()), Procedure.SUSPEND) == {}


def test_functions_of_one_class_keep_their_own_states() -> None:
    states = carry_out(functions_of(Traced(state=1), Traced(state=2)), Procedure.SUSPEND)
    functions = Traced(), Traced()
    functions_of(*functions, restored=lambda: states)
    assert [function.given for function in functions] == [1, 2]


@pytest.mark.req("SAFE-24")
def test_a_function_that_the_script_registers_late_keeps_its_state_in_a_snapshot_before() -> None:
    states = carry_out(functions_of(Traced(state=1), Traced(state=2)), Procedure.SUSPEND)
    early, late = Traced(state=3), Traced()
    driver = functions_of(early, restored=lambda: states)
    again = driver.snapshot_state(7)
    assert {name: again[name] for name in states.keys() - {min(states)}} == {max(states): states[max(states)]}
    assert again[min(states)] != states[min(states)], "a function that runs is asked"
    driver._registry.add(late)
    assert late.given == 2
    functions = Traced(), Traced()
    functions_of(*functions, restored=lambda: again)
    assert [function.given for function in functions] == [3, 2]


@pytest.mark.req("SAFE-24")
def test_a_function_that_has_ended_keeps_the_state_of_its_last_snapshot() -> None:
    ended, other = Traced(state=1), Traced(state=2)
    driver = functions_of(ended, other)
    states = driver.snapshot_state(7)
    with ended:
        pass
    assert driver.snapshot_state(8) == states
    assert ended.calls.count("snapshot_state") == 1


@pytest.mark.req("SAFE-24")
def test_a_function_that_closes_during_a_snapshot_keeps_its_state() -> None:
    class Closes(Traced):
        def snapshot_state(self) -> Any:
            if self.calls.count("snapshot_state"):
                with closed:
                    pass
            return super().snapshot_state()

    closed = Traced(state=2)
    driver = functions_of(Closes(state=1), closed)
    states = driver.snapshot_state(7)
    assert driver.snapshot_state(8) == states
    assert driver.snapshot_state(9) == states
    assert closed.calls.count("snapshot_state") == 1


def test_a_function_that_says_that_it_has_no_state_any_more_keeps_none() -> None:
    states = carry_out(functions_of(Traced(state=1)), Procedure.SUSPEND)
    assert functions_of(Traced(state=None), restored=lambda: states).snapshot_state(7) == {}
    (name,) = states
    driver = functions_of(restored=lambda: states)
    driver._registry.add(OnlyClose(), name)
    assert driver.snapshot_state(7) == {}


def test_a_function_that_comes_before_spark_gets_its_state_when_spark_is_up() -> None:
    states = carry_out(functions_of(Traced(state=1)), Procedure.SUSPEND)
    is_up = False

    def restored() -> Mapping[str, bytes]:
        if not is_up:
            raise SparkUnavailable("no SparkContext runs in this driver")
        return states

    function = Traced()
    driver = functions_of(function, restored=restored)
    assert function.calls == []
    is_up = True
    driver.begun.begin_all()
    driver.begun.begin_all()
    assert function.calls == ["initialize_state", "open"]


@pytest.mark.req("SAFE-19")
def test_functions_that_may_have_state_are_named() -> None:
    class Stateless(RichFunction):
        pass

    driver = functions_of(Traced(), Stateless(), OnlyClose())
    (name,) = driver.with_state()
    assert name.endswith(".Traced")


def test_state_that_cannot_be_kept_or_read_is_refused() -> None:
    with pytest.raises(UserFunctionFailed, match="return bytes or a value that JSON can represent"):
        functions_of(Traced(state=object())).snapshot_state(1)
    with pytest.raises(Fatal, match="of an unknown kind"):
        functions_of(Traced(), restored=lambda: {f"{Traced.__module__}.Traced": b"?"})


@pytest.mark.req("END-2")
def test_a_context_manager_ends_well_or_fails() -> None:
    function = Traced()
    with function:
        pass
    assert function.calls == ["open", *FINITE]
    assert isinstance(function, WithGracefulShutdown)
    broken = Traced()
    with pytest.raises(LookupError), broken:
        raise LookupError
    assert broken.calls == ["open", "close"]


def test_what_takes_part_is_told_by_its_methods() -> None:
    def plain(frame: object, batch_id: int) -> None: ...

    assert takes_part(Traced())
    assert takes_part(OnlyClose())
    assert not takes_part(plain)
    assert not takes_part(Traced)
    assert not takes_part(object())


@pytest.mark.req("END-3")
def test_queries_end_before_their_functions_at_the_end_of_the_sources() -> None:
    function = Traced()
    registry = Registry()
    executors = ExecutorFunctions(WorkerPort("127.0.0.1", 1), dict)
    driver = DriverFunctions(registry, dict, executors, end_queries=lambda: function.calls.append("queries end"))
    driver.follow()
    registry.add(function)
    driver.sources_ended()
    assert function.calls == ["open", "queries end", *FINITE]


@pytest.mark.req("END-3")
def test_functions_of_a_spark_context_that_has_failed_do_not_keep_those_of_the_next_from_their_end() -> None:
    """A script may stop Spark after an error, and try again with a new SparkContext."""
    failed, again, other = Traced(), Traced(), Traced()
    driver = functions_of(failed, again)
    driver.spark_stops(failed=True)
    assert driver.has_other_end(failed)
    assert failed.calls == again.calls == ["open"], "the script may use them again"

    driver._registry.add(other)
    driver.used(again)
    driver.sources_ended()
    assert again.calls == other.calls == ["open", *FINITE]
    assert failed.calls == ["open", *CANCEL]
