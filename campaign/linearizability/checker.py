"""Decides whether a history is linearizable: Wing and Gong's search with Lowe's memoisation, as in porcupine.

The search orders the operations one by one. The next operation is one that was invoked before every operation that is
not in the order yet has returned; its result must be possible in the model's state. Each pair of a set of ordered
operations and a state is tried once. An operation with an unknown outcome may stay out of the order.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

import msgspec

from campaign.linearizability.history import Operation, by_key

StateT = TypeVar("StateT", bound=Hashable)

LIMIT = 200_000  # configurations of one object


class Model(Protocol[StateT]):
    """The sequential object."""

    def initial(self) -> StateT:
        """Return the state of an object before the first operation."""
        ...

    def after(self, state: StateT, operation: Operation) -> Iterable[StateT]:
        """Return the states in which ``operation`` may leave the object; none if its result is impossible here.

        For an operation whose outcome is unknown: the states if it takes effect now.
        """
        ...


class Outcome(enum.Enum):
    LINEARIZABLE = "linearizable"
    VIOLATED = "violated"
    UNDECIDED = "undecided"  # the search has reached its limit


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about one object. ``explored``: configurations that were tried.

    ``explained`` is the longest order that was found, and ``unexplained`` the operations that could have come next, if
    the history is not linearizable.
    """

    key: str
    outcome: Outcome
    operations: int
    explored: int
    explained: tuple[Operation, ...] = ()
    unexplained: tuple[Operation, ...] = ()

    def __str__(self) -> str:
        told = f"{self.key}: {self.outcome.value}, {self.operations} operations"
        if self.outcome is Outcome.VIOLATED:
            last = "; ".join(map(str, self.explained[-3:]))
            told += f"; after {last or 'nothing'}, none of these can follow: {'; '.join(map(str, self.unexplained))}"
        return told


def check(operations: Iterable[Operation], model: Model[StateT], limit: int = LIMIT) -> list[Verdict]:
    """Check the history of each object by itself."""
    return [check_object(key, each, model, limit) for key, each in sorted(by_key(operations).items())]


def check_object(key: str, operations: Sequence[Operation], model: Model[StateT], limit: int = LIMIT) -> Verdict:
    """Check the history of one object, trying at most ``limit`` configurations."""
    search = _Search(operations, model)
    outcome = search.run(limit)
    violated = outcome is Outcome.VIOLATED
    return Verdict(
        key=key,
        outcome=outcome,
        operations=len(operations),
        explored=len(search.tried),
        explained=tuple(search.longest) if violated else (),
        unexplained=tuple(search.next_ones()) if violated else (),
    )


class _Search:
    """``tried``: pairs of the set of ordered operations, as bits, and the state."""

    def __init__(self, operations: Sequence[Operation], model: Model[StateT]) -> None:
        # Those with a known outcome first: an unknown one takes effect only where something needs it.
        self._operations = sorted(operations, key=lambda each: (each.returned is None, each.invoked))
        self._model = model
        self._known = sum(1 << n for n, each in enumerate(self._operations) if each.returned is not None)
        self.tried: set[tuple[int, Hashable]] = set()
        self.longest: list[Operation] = []
        self._longest_done = 0

    def run(self, limit: int) -> Outcome:
        order: list[Operation] = []
        stack = [self._moves(0, self._model.initial())]
        while stack:
            move = next(stack[-1], None)
            if move is None:
                stack.pop()
                if order:
                    order.pop()
                continue
            done, state, operation = move
            if done & self._known == self._known:
                return Outcome.LINEARIZABLE
            if (done, state) in self.tried:
                continue
            if len(self.tried) >= limit:
                return Outcome.UNDECIDED
            self.tried.add((done, state))
            order.append(operation)
            if len(order) > len(self.longest):
                self.longest, self._longest_done = list(order), done
            stack.append(self._moves(done, state))
        return Outcome.LINEARIZABLE if not self._known else Outcome.VIOLATED

    def next_ones(self) -> Iterator[Operation]:
        """Return the operations with a known outcome that could have followed the longest order, by their times."""
        return (each for _, each in self._candidates(self._longest_done) if each.returned is not None)

    def _moves(self, done: int, state: Hashable) -> Iterator[tuple[int, Hashable, Operation]]:
        for number, operation in self._candidates(done):
            for after in self._model.after(state, operation):  # type: ignore[arg-type]
                yield done | 1 << number, after, operation

    def _candidates(self, done: int) -> Iterator[tuple[int, Operation]]:
        earliest = math.inf  # return of an operation that is not in the order
        left = []
        for number, operation in enumerate(self._operations):
            if done >> number & 1:
                continue
            if operation.returned is not None:
                if operation.invoked > earliest:
                    continue  # and so are all later ones with a known outcome
                earliest = min(earliest, operation.returned)
            left.append((number, operation))
        return ((number, each) for number, each in left if each.invoked <= earliest)
