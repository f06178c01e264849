"""Stored pieces, read as one log."""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.kept_logs.model import PieceHeader
from emberkeep.kept_logs.stitching import Stitched, stitch
from emberkeep.log_records.model import Selection
from emberkeep.log_records.scan import Search

TEXT = b"one\ntwo\nthree\nfour\nfive\nsix\n"


def header(offset: int, end: int) -> PieceHeader:
    return PieceHeader(offset=offset, size=end - offset, source=offset, since_ms=offset, until_ms=end, digest="")


def note(missing: int, since_ms: int, until_ms: int) -> bytes:
    return b"<%d>\n" % missing


def log_of(*spans: tuple[int, int]) -> tuple[Stitched, Mapping[int, bytes]]:
    pieces = {number: TEXT[start:end] for number, (start, end) in enumerate(spans)}
    return stitch([header(*span) for span in spans], note), pieces


def whole(*spans: tuple[int, int], limit: int = 1000) -> list[tuple[int, bytes]]:
    """Read as a client does, and return each reply with its offset."""
    log, pieces = log_of(*spans)
    offset, found = 0, []
    while (extent := log.extent_at(offset)) is not None:
        start = max(offset, extent.start)
        data = log.read(extent, start, limit, pieces.__getitem__)
        found.append((start, data))
        offset = start + len(data)
    return found


def test_pieces_one_after_the_other_are_the_log() -> None:
    assert whole((0, 8), (8, 14), (14, 28)) == [(0, TEXT)]


def test_order_repetition_and_overlap_do_not_matter() -> None:
    assert whole((8, 14), (0, 8), (0, 8), (4, 28), (14, 20)) == [(0, TEXT)]


def test_a_reader_may_take_small_steps() -> None:
    assert b"".join(data for _, data in whole((0, 8), (8, 28), limit=3)) == TEXT


def test_a_gap_is_told_where_the_log_goes_on() -> None:
    assert whole((0, 4), (14, 28)) == [(0, b"one\n"), (9, b"<10>\n" + TEXT[14:])]


def test_so_is_a_missing_beginning() -> None:
    assert whole((14, 28)) == [(9, b"<14>\n" + TEXT[14:])]


def test_a_gap_that_is_shorter_than_its_note_has_the_end_of_the_note() -> None:
    assert whole((0, 4), (6, 8)) == [(0, b"one\n"), (4, b">\no\n")]


def test_nothing_is_stored() -> None:
    assert whole() == []
    assert log_of()[0].size == 0


def test_a_search_passes_over_a_gap_in_both_directions() -> None:
    log, pieces = log_of((0, 8), (19, 28))
    view = log.view(pieces.__getitem__, True, int)

    def step(offset: int, *, backwards: bool = False) -> tuple[list[tuple[int, bytes]], int, int]:
        wanted = Search(selection=Selection(), offset=offset, limit=10, most_bytes=99, backwards=backwards)
        found = view.search(wanted)
        return [(record.offset, record.data) for record in found.records], found.start, found.end

    first, last = [(0, b"one\n"), (4, b"two\n")], [(14, b"<11>\n"), (19, b"five\n"), (24, b"six\n")]
    assert step(0) == (first, 0, 14)
    assert step(14) == (last, 14, 28)
    assert step(28) == ([], 28, 28)
    assert step(40) == ([], 40, 40), "a reader that has seen more than is kept waits there"
    assert step(2**53, backwards=True) == (last, 8, 28)
    assert step(8, backwards=True) == (first, 0, 8)
    assert step(0, backwards=True) == ([], 0, 0)


def test_a_gap_at_the_end_is_told() -> None:
    log, pieces = log_of((0, 4), (28, 28))

    assert [log.read(extent, extent.start, 99, pieces.__getitem__) for extent in log.extents] == [b"one\n", b"<24>\n"]
    assert log.size == 28
