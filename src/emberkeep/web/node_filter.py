"""Which nodes and task managers the lists show, and the links that change that: all of it is in the address. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Generic, TypeVar

from emberkeep.base.errors import InvalidInput
from emberkeep.blocklist.model import BlockAction
from emberkeep.jobmanager.views.cluster import TaskManagerView
from emberkeep.web.nodes import NodeLine
from emberkeep.web.paging import page_address, page_count

PER_PAGE: Final = 100

Entry = TypeVar("Entry")


class Standing(StrEnum):
    """What a node or task manager may be used for."""

    AVAILABLE = "available"
    BLOCKED = "blocked"
    EVACUATED = "evacuated"
    AWAY = "away"  # it has lost contact


@dataclass(frozen=True)
class NodeFilter:
    """Which entries are listed: None and "" select all. ``path``: of the list. ``text``: in any case."""

    path: str
    state: Standing | None = None
    text: str = ""

    def with_state(self, state: Standing | None) -> NodeFilter:
        return replace(self, state=state)

    def address(self, page: int = 1) -> str:
        """Return the address of a page of the list."""
        return page_address(self.path, page, state=self.state or "", text=self.text)


@dataclass(frozen=True)
class Listed(Generic[Entry]):
    """A page of a list. ``counts``: of the entries with the text, by state. ``states``: those that have entries."""

    filter: NodeFilter
    entries: Sequence[Entry]
    counts: dict[Standing, int]
    total: int
    number: int
    pages: int

    @property
    def states(self) -> list[Standing]:
        return [each for each in Standing if self.counts.get(each) or each is self.filter.state]


def parse_standing(text: str) -> Standing | None:
    """Return the state that a text names; None for "". Raises InvalidInput."""
    if not text:
        return None
    try:
        return Standing(text)
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not the state of a node", field="state") from None


def listed(
    wanted: NodeFilter,
    number: int,
    entries: Iterable[Entry],
    words: Callable[[Entry], Iterable[str]],
    standing: Callable[[Entry], Standing],
) -> Listed[Entry]:
    """Return the page with this number. ``words``: what an entry is searched by; ``standing``: its state."""
    text = wanted.text.strip().lower()
    found = [each for each in entries if any(text in word.lower() for word in words(each))]
    chosen = [each for each in found if wanted.state in (None, standing(each))]
    first = (number - 1) * PER_PAGE
    return Listed(
        filter=wanted,
        entries=chosen[first : first + PER_PAGE],
        counts=dict(Counter(standing(each) for each in found)),
        total=len(found),
        number=number,
        pages=page_count(len(chosen), PER_PAGE),
    )


def node_words(line: NodeLine) -> Iterable[str]:
    return (line.id, *line.task_managers)


def node_standing(line: NodeLine) -> Standing:
    """Return what a node may be used for. One that is blocked and away is shown as blocked: a person did that."""
    if line.entry is not None:
        return Standing.BLOCKED if line.entry.action is BlockAction.MARK_BLOCKED else Standing.EVACUATED
    return Standing.AWAY if line.away else Standing.AVAILABLE


def task_manager_words(view: TaskManagerView) -> Iterable[str]:
    return (view.info.id, view.info.node_id, view.info.address)


def task_manager_standing(view: TaskManagerView) -> Standing:
    if view.evacuated:
        return Standing.EVACUATED
    if view.blocked:
        return Standing.BLOCKED
    return Standing.AWAY if view.away else Standing.AVAILABLE
