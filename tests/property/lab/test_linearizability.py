"""The checker accepts what a linearizable object does, and agrees with trying all orders about everything else."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from campaign.linearizability.blocklist import PERMANENT, REFUSED, BlocklistModel, Stored
from campaign.linearizability.checker import Model, Outcome, check_object
from campaign.linearizability.history import Operation
from campaign.linearizability.job_store import ABSENT, JobStoreModel
from emberkeep.blocklist.merge import merged
from emberkeep.blocklist.model import BlockAction, BlockedNode
from tests.campaign import examples

AFTER_ALL = 10_000.0  # later than every operation of a drawn history
ENTRIES = [
    None,
    *({"action": "MARK_BLOCKED", "end": PERMANENT, "cause": cause} for cause in ("a", "b", "a; b", "b; a")),
]


def block(cause: str, *, merge: bool) -> tuple[str, dict[str, Any]]:
    return "block", {"action": "MARK_BLOCKED", "end": PERMANENT, "cause": cause, "merge": merge}


BLOCKLIST_CALLS = [block("a", merge=False), block("b", merge=True), ("unblock", {}), ("list", {})]
JOB_CALLS: list[tuple[str, dict[str, Any]]] = [
    (kind, {"jobid": job}) for kind in ("submit", "cancel", "read") for job in ("one", "two")
]


def possible_results(kind: str, arguments: dict[str, Any]) -> list[Any]:
    """Return every result that the models tell apart."""
    if kind == "submit":
        return [{"jobid": job, "created": created} for job in ("one", "two") for created in (True, False)]
    if kind == "cancel":
        return [None, ABSENT, "ended"]
    if kind == "read":
        states = ("RUNNING", "CANCELLING", "CANCELED", "FINISHED")
        return [ABSENT, *({"status": status, "attempt": attempt} for status in states for attempt in (1, 2))]
    return [None, REFUSED] if kind == "unblock" else [REFUSED, *ENTRIES] if kind == "block" else ENTRIES


@st.composite
def lin_histories(draw: st.DrawFn, model: Model[Any], calls: list[tuple[str, dict[str, Any]]]) -> list[Operation]:
    """Draw a history of an object that is linearizable: each operation takes effect within its time."""
    state, history = model.initial(), []
    for moment in range(1, draw(st.integers(1, 14)) + 1):
        kind, arguments = draw(st.sampled_from(calls))
        before, after = (draw(st.floats(0.0, 4.0)) for _ in range(2))
        operation = Operation(
            client=f"c{moment}",
            key="k",
            kind=kind,
            arguments=arguments,
            invoked=moment - before,
            returned=moment + after,
        )
        options = [
            (msgspec.structs.replace(operation, result=result), new)
            for result in possible_results(kind, arguments)
            for new in model.after(state, msgspec.structs.replace(operation, result=result))
        ]
        operation, new = draw(st.sampled_from(options))
        if kind in ("list", "read") or draw(st.integers(0, 3)):
            state = new
        else:  # nobody knows, and it may have taken effect or not
            operation = msgspec.structs.replace(operation, returned=None, result=None)
            state = new if draw(st.booleans()) else state
        history.append(operation)
    return history


def final(kind: str, result: Any, **arguments: Any) -> Operation:
    """Return an operation that begins after all others."""
    return Operation(
        client="last",
        key="k",
        kind=kind,
        arguments=arguments,
        invoked=AFTER_ALL,
        returned=AFTER_ALL + 1,
        result=result,
    )


def outcome(history: Sequence[Operation], model: Model[Any]) -> Outcome:
    return check_object("k", history, model).outcome


def by_all_orders(history: Sequence[Operation], model: Model[Any]) -> Outcome:
    """Try every order of every choice of unknown operations, as the definition says."""
    known = [each for each in history if each.returned is not None]
    unknown = [each for each in history if each.returned is None]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*known, *chosen]):
                if _keeps_times(order) and _is_possible(order, model):
                    return Outcome.LINEARIZABLE
    return Outcome.VIOLATED


def _keeps_times(order: Sequence[Operation]) -> bool:
    return not any(
        later.returned is not None and later.returned < earlier.invoked
        for earlier, later in itertools.combinations(order, 2)
    )


def _is_possible(order: Sequence[Operation], model: Model[Any]) -> bool:
    states = {model.initial()}
    for operation in order:
        states = {after for state in states for after in model.after(state, operation)}
    return bool(states)


def complete_states(history: Sequence[Operation], model: Model[Any]) -> set[Any]:
    """Return every state in which the history may have left the object."""
    found = set()
    unknown = [each for each in history if each.returned is None]
    known = [each for each in history if each.returned is not None]
    for count in range(len(unknown) + 1):
        for chosen in itertools.combinations(unknown, count):
            for order in itertools.permutations([*known, *chosen]):
                if _keeps_times(order):
                    states = {model.initial()}
                    for operation in order:
                        states = {after for state in states for after in model.after(state, operation)}
                    found |= states
    return found


@settings(max_examples=examples(100))
@given(lin_histories(BlocklistModel(), BLOCKLIST_CALLS))
def test_histories_of_a_linearizable_blocklist_are_accepted(history: list[Operation]) -> None:
    assert outcome(history, BlocklistModel()) is Outcome.LINEARIZABLE


@settings(max_examples=examples(100))
@given(lin_histories(JobStoreModel(), JOB_CALLS))
def test_histories_of_a_linearizable_job_store_are_accepted(history: list[Operation]) -> None:
    assert outcome(history, JobStoreModel()) is Outcome.LINEARIZABLE


@st.composite
def any_histories(draw: st.DrawFn, calls: list[tuple[str, dict[str, Any]]]) -> list[Operation]:
    """Draw a short history with whatever times and results."""
    history = []
    for number in range(draw(st.integers(1, 5))):
        kind, arguments = draw(st.sampled_from(calls))
        invoked = draw(st.integers(0, 8))
        unknown = kind not in ("list", "read") and draw(st.integers(0, 4)) == 0
        history.append(
            Operation(
                client=f"c{number}",
                key="k",
                kind=kind,
                arguments=arguments,
                invoked=invoked,
                returned=None if unknown else invoked + draw(st.integers(0, 4)),
                result=None if unknown else draw(st.sampled_from(possible_results(kind, arguments))),
            )
        )
    return history


@settings(max_examples=examples(200))
@given(any_histories(BLOCKLIST_CALLS))
def test_the_search_agrees_with_all_orders_about_a_blocklist(history: list[Operation]) -> None:
    assert outcome(history, BlocklistModel()) is by_all_orders(history, BlocklistModel())


@settings(max_examples=examples(200))
@given(any_histories(JOB_CALLS))
def test_the_search_agrees_with_all_orders_about_a_job_store(history: list[Operation]) -> None:
    assert outcome(history, JobStoreModel()) is by_all_orders(history, JobStoreModel())


@settings(max_examples=examples(60))
@given(lin_histories(BlocklistModel(), BLOCKLIST_CALLS).filter(lambda history: len(history) < 6), st.data())
def test_a_stale_or_invented_entry_is_rejected(history: list[Operation], data: st.DataObject) -> None:
    """What a listing after all operations shows must be what one of their orders leaves."""
    model = BlocklistModel()
    possible = complete_states(history, model)
    shown = data.draw(st.sampled_from(ENTRIES))
    read = final("list", shown)
    fits = any(list(model.after(state, read)) for state in possible)
    assert outcome([*history, read], model) is (Outcome.LINEARIZABLE if fits else Outcome.VIOLATED)


@settings(max_examples=examples(60))
@given(lin_histories(JobStoreModel(), JOB_CALLS))
def test_a_lost_job_and_a_key_that_starts_two_are_rejected(history: list[Operation]) -> None:
    model = JobStoreModel()
    accepted = next((each.result["jobid"] for each in history if each.kind == "submit" and each.result), None)
    if accepted is None:
        return
    assert outcome([*history, final("read", ABSENT, jobid=accepted)], model) is Outcome.VIOLATED
    doubled = final("submit", {"jobid": "three", "created": True}, jobid="three")
    assert outcome([*history, doubled], model) is Outcome.VIOLATED


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(["RUNNING", "CANCELLING", "CANCELED", "FINISHED"]), min_size=2, max_size=6))
def test_a_job_never_goes_back(statuses: list[str]) -> None:
    model = JobStoreModel()
    history = [
        Operation(
            client="c",
            key="k",
            kind="read",
            arguments={"jobid": "one"},
            invoked=2.0 * number,
            returned=2.0 * number + 1,
            result={"status": status, "attempt": 1},
        )
        for number, status in enumerate(statuses, 2)
    ]
    begun = Operation(
        client="c",
        key="k",
        kind="submit",
        arguments={"jobid": "one"},
        invoked=0.0,
        returned=1.0,
        result={"jobid": "one", "created": True},
    )
    cancelled = Operation(client="d", key="k", kind="cancel", arguments={"jobid": "one"}, invoked=1.5)
    ranks = [("RUNNING", "CANCELLING", "CANCELED").index(each.replace("FINISHED", "CANCELED")) for each in statuses]
    ends = {each for each in statuses if each in ("CANCELED", "FINISHED")}
    advances = ranks == sorted(ranks) and len(ends) < 2
    expected = Outcome.LINEARIZABLE if advances else Outcome.VIOLATED
    assert outcome([begun, cancelled, *history], model) is expected


ENTRIES_TO_MERGE = st.builds(
    Stored,
    action=st.sampled_from([action.value for action in BlockAction]),
    end=st.one_of(st.integers(0, 9), st.just(PERMANENT)),
    causes=st.lists(st.text("abcdef", min_size=1, max_size=2), min_size=1, max_size=8, unique=True).map(tuple),
)


def of_product(entry: Stored) -> BlockedNode:
    return BlockedNode(id="n", action=BlockAction(entry.action), start_ms=0, end_ms=entry.end, causes=entry.causes)


@settings(max_examples=examples(200))
@given(ENTRIES_TO_MERGE, ENTRIES_TO_MERGE)
def test_the_model_of_the_blocklist_merges_as_the_product_does(old: Stored, new: Stored) -> None:
    """The model has a merge of its own, so a wrong one on either side shows."""
    assert of_product(old.merged(new)) == merged(of_product(old), of_product(new))
