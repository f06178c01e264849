"""The checker: times decide, unknown outcomes may or may not have happened, and the search has a bound."""

from __future__ import annotations

from typing import Any

import pytest

from campaign.linearizability.blocklist import REFUSED, BlocklistModel, with_expiries
from campaign.linearizability.checker import Outcome, check, check_object
from campaign.linearizability.history import Operation
from campaign.linearizability.job_store import ABSENT, ENDED, JobStoreModel
from emberkeep.blocklist.model import PERMANENT


def operation(kind: str, invoked: float, returned: float | None, result: Any = None, **arguments: Any) -> Operation:
    return Operation(
        client="c", key="k", kind=kind, arguments=arguments, invoked=invoked, returned=returned, result=result
    )


def entry(cause: str, end: int = PERMANENT, action: str = "MARK_BLOCKED") -> dict[str, Any]:
    return {"action": action, "end": end, "cause": cause}


def block(invoked: float, returned: float | None, result: Any, cause: str, **given: Any) -> Operation:
    arguments = {"action": "MARK_BLOCKED", "end": PERMANENT, "cause": cause, "merge": False, **given}
    return operation("block", invoked, returned, result, **arguments)


def submit(invoked: float, returned: float | None, job: str, got: str, *, created: bool = True) -> Operation:
    return operation("submit", invoked, returned, {"jobid": got, "created": created} if returned else None, jobid=job)


def read(invoked: float, status: str, job: str = "one", attempt: int = 1) -> Operation:
    result = ABSENT if status == ABSENT else {"status": status, "attempt": attempt}
    return operation("read", invoked, invoked + 0.5, result, jobid=job)


FINE = Outcome.LINEARIZABLE
BROKEN = Outcome.VIOLATED


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param([], FINE, id="nothing"),
        pytest.param([block(0, 1, entry("a"), "a"), operation("list", 2, 3, entry("a"))], FINE, id="read own write"),
        pytest.param([block(0, 1, entry("a"), "a"), operation("list", 2, 3)], BROKEN, id="lost write"),
        pytest.param([block(0, 9, entry("a"), "a"), operation("list", 2, 3)], FINE, id="beside: before"),
        pytest.param([block(0, 9, entry("a"), "a"), operation("list", 2, 3, entry("a"))], FINE, id="beside: after"),
        pytest.param(
            [
                block(0, 9, entry("a"), "a"),
                operation("list", 2, 3, entry("a")),
                operation("list", 4, 5),
            ],
            BROKEN,
            id="flickers",
        ),
        pytest.param(
            [block(0, 1, entry("a"), "a"), operation("unblock", 2, 3), operation("list", 4, 5, entry("a"))],
            BROKEN,
            id="stale read",
        ),
        pytest.param([block(0, None, None, "a"), operation("list", 2, 3)], FINE, id="unknown: not done"),
        pytest.param([block(0, None, None, "a"), operation("list", 2, 3, entry("a"))], FINE, id="unknown: done"),
        pytest.param(
            [
                block(0, None, None, "a"),
                operation("list", 2, 3),
                operation("list", 4, 5, entry("a")),
                operation("list", 6, 7),
            ],
            BROKEN,
            id="unknown: done late, once",
        ),
        pytest.param(
            [
                block(0, None, None, "a"),
                operation("list", 1, 2, entry("a")),
                operation("unblock", 3, 4),
                operation("list", 5, 6, entry("a")),
            ],
            BROKEN,
            id="unknown: not done twice",
        ),
        pytest.param([block(5, None, None, "a"), operation("list", 2, 3, entry("a"))], BROKEN, id="before it began"),
        pytest.param(
            [block(0, 1, entry("a"), "a"), block(2, 3, entry("b"), "b")], BROKEN, id="blocked twice without merging"
        ),
        pytest.param([block(0, 1, entry("a"), "a"), block(2, 3, REFUSED, "b")], FINE, id="refused"),
        pytest.param([block(0, 1, REFUSED, "a")], BROKEN, id="refused without an entry"),
        pytest.param(
            [
                block(0, 1, entry("a"), "a"),
                block(
                    2,
                    3,
                    entry("a; b", action="MARK_BLOCKED_AND_EVACUATE_TASKS"),
                    "b",
                    merge=True,
                    action="MARK_BLOCKED_AND_EVACUATE_TASKS",
                    end=5_000,
                ),
            ],
            FINE,
            id="merged",
        ),
        pytest.param([operation("unblock", 0, 1)], BROKEN, id="removed what was never there"),
        pytest.param([operation("unblock", 0, 1, REFUSED)], FINE, id="nothing to remove"),
    ],
)
def test_a_blocklist(history: list[Operation], expected: Outcome) -> None:
    assert check_object("k", history, BlocklistModel()).outcome is expected


def test_an_entry_may_go_after_its_end_and_not_before() -> None:
    written = block(0, 1, entry("a", end=5_000), "a", end=5_000)
    early, late = operation("list", 3, 4), operation("list", 6, 7)
    still = operation("list", 8, 9, entry("a", end=5_000))
    for history, expected in (
        ([written, early], BROKEN),
        ([written, late], FINE),
        ([written, still], FINE),
        ([written, late, still], BROKEN),
    ):
        assert check_object("k", with_expiries(history, 0.0), BlocklistModel()).outcome is expected


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        pytest.param([submit(0, 1, "one", "one"), read(2, "RUNNING")], FINE, id="accepted"),
        pytest.param([submit(0, 1, "one", "one"), read(2, ABSENT)], BROKEN, id="lost"),
        pytest.param([submit(0, None, "one", ""), read(2, ABSENT)], FINE, id="unknown: not accepted"),
        pytest.param(
            [submit(0, 1, "one", "one"), submit(2, 3, "two", "one", created=False)], FINE, id="the key is known"
        ),
        pytest.param([submit(0, 1, "one", "one"), submit(2, 3, "two", "two")], BROKEN, id="the key is forgotten"),
        pytest.param(
            [submit(0, None, "one", ""), submit(2, 3, "two", "one", created=False)], FINE, id="unknown: was accepted"
        ),
        pytest.param(
            [submit(0, 1, "one", "one"), read(2, "RUNNING", attempt=2), read(4, "RUNNING")],
            BROKEN,
            id="an attempt that is over",
        ),
        pytest.param([submit(0, 1, "one", "one"), read(2, "FINISHED"), read(4, "RUNNING")], BROKEN, id="runs again"),
        pytest.param([submit(0, 1, "one", "one"), read(2, "CANCELED")], BROKEN, id="cancelled by nobody"),
        pytest.param(
            [submit(0, 1, "one", "one"), operation("cancel", 2, None, jobid="one"), read(4, "CANCELED")],
            FINE,
            id="unknown: cancelled",
        ),
        pytest.param(
            [submit(0, 1, "one", "one"), operation("cancel", 2, 3, ENDED, jobid="one"), read(4, "RUNNING")],
            BROKEN,
            id="had ended and runs",
        ),
        pytest.param(
            [submit(0, 1, "one", "one"), read(2, "FINISHED"), operation("cancel", 4, 5, jobid="one")],
            BROKEN,
            id="cancels what has ended",
        ),
        pytest.param([operation("cancel", 0, 1, ABSENT, jobid="one")], FINE, id="nothing to cancel"),
        pytest.param(
            [submit(0, 1, "one", "one"), operation("cancel", 2, 3, jobid="one"), read(4, "RESTARTING")],
            BROKEN,
            id="cancelled and starts again",
        ),
        pytest.param(
            [submit(0, 1, "one", "one"), operation("cancel", 2, None, jobid="one"), read(4, "RESTARTING")],
            FINE,
            id="unknown: not cancelled yet",
        ),
        pytest.param(
            [submit(0, 1, "one", "one"), operation("cancel", 2, 3, jobid="one"), read(4, "FINISHED")],
            FINE,
            id="cancelled as it ended",
        ),
    ],
)
def test_a_job_store(history: list[Operation], expected: Outcome) -> None:
    assert check_object("k", history, JobStoreModel()).outcome is expected


def test_each_object_is_checked_by_itself_and_a_violation_says_what_does_not_fit() -> None:
    fine = block(0, 1, entry("a"), "a")
    other = Operation(client="c", key="other", kind="list", invoked=2, returned=3, result=entry("a"))
    first, second = check([fine, other], BlocklistModel())
    assert (first.key, first.outcome, second.key, second.outcome) == ("k", FINE, "other", BROKEN)
    assert second.unexplained == (other,)
    assert "none of these can follow" in str(second)


def test_a_search_that_takes_too_long_is_undecided() -> None:
    unknown = [block(0, None, None, f"cause-{number}", merge=True) for number in range(12)]
    never = operation("list", 1, 2, entry("something else"))
    assert check_object("k", [*unknown, never], BlocklistModel(), limit=500).outcome is Outcome.UNDECIDED
