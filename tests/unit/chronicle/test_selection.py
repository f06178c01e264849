"""Pages of a stream: filters, the way back by ``before``, the way on by ``after``."""

from __future__ import annotations

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.chronicle.selection import Page, Selection, page_of
from tests.unit.chronicle.occurrences import at

STREAM = [at(second, What.STATUS if second % 2 else What.EXCEPTION) for second in range(1, 8)]


def test_pages_lead_back_to_the_oldest_occurrence() -> None:
    found: list[Occurrence] = []
    before = ""
    for _ in range(10):
        page = page_of(STREAM, Selection(limit=3, before=before))
        found += page.occurrences
        before = page.next
        if not before:
            break
    assert found == STREAM[::-1]


def test_types_and_times_select() -> None:
    selection = Selection(types=frozenset({"status"}), since_ms=2000, until_ms=5000)
    assert page_of(STREAM, selection) == Page(occurrences=(STREAM[4], STREAM[2]), next="")


def test_who_asked_and_what_is_said_select_in_any_case() -> None:
    saved = at(8, What.SAVEPOINT, by="Ana", message="in /savepoints")
    lost = at(9, What.EXCEPTION, node="Node-7", message="lost")
    stream = [*STREAM, saved, lost]
    found = {text: page_of(stream, Selection(text=text)).occurrences for text in ("SAVEPOINTS", "node-7", "nothing")}
    assert found == {"SAVEPOINTS": (saved,), "node-7": (lost,), "nothing": ()}
    assert page_of(stream, Selection(by="ana")).occurrences == (saved,)


def test_after_gives_the_oldest_first_and_a_cursor_that_skips_nothing() -> None:
    first = page_of(STREAM, Selection(after="", limit=3))
    second = page_of(STREAM, Selection(after=first.next, limit=10))
    assert [*first.occurrences, *second.occurrences] == STREAM
    assert page_of(STREAM, Selection(after=second.next)) == Page(next=STREAM[-1].id)


def test_the_cursor_passes_over_what_was_not_selected() -> None:
    page = page_of(STREAM, Selection(types=frozenset({"savepoint"}), after=STREAM[1].id))
    assert page == Page(next=STREAM[-1].id)


def test_a_cursor_ahead_of_the_stream_stays() -> None:
    """A follower that has changed to a JobManager without the newest occurrences must not get old ones again."""
    ahead = at(9, What.STATUS, epoch=2).id
    assert page_of(STREAM, Selection(after=ahead)) == Page(next=ahead)
