"""However logs grow and their pieces are stored: what is kept reads as the log, and only gaps are missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emberkeep.kept_logs.model import PieceHeader, Position
from emberkeep.kept_logs.retention import FILE_COST, Segment, surplus
from emberkeep.kept_logs.shipping import cut, next_part
from emberkeep.kept_logs.stitching import stitch
from emberkeep.log_records.model import Selection
from emberkeep.log_records.scan import Search

LINES = st.lists(st.binary(min_size=0, max_size=9).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=30)
SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=8)


def header(offset: int, size: int) -> PieceHeader:
    return PieceHeader(offset=offset, size=size, source=offset, since_ms=0, until_ms=0, digest="")


def note(missing: int, since_ms: int, until_ms: int) -> bytes:
    return b"(%d)\n" % missing


class Shipment:
    """A file that grows, a task manager that sends it, and a JobManager that stores what it gets."""

    def __init__(self, most_behind: int) -> None:
        self.file = b""
        self.ended = False
        self.pieces: list[tuple[PieceHeader, bytes]] = []
        self.stored = Position()
        self.known: Position | None = None
        self.most_behind = most_behind

    def send(self, *, lost_reply: bool = False) -> None:
        known = self.known = self.known or self.stored
        size = len(self.file)
        part = next_part(known, size, has_ended=self.ended, most_behind=self.most_behind)
        if part is None:
            return
        data = self.file[part.source : part.source + min(part.count, 16)]
        piece = cut(part, data, size, has_ended=self.ended)
        if piece is None:
            return
        self.receive(header(piece.offset, len(piece.data)), piece.data, is_last=piece.is_last)
        self.known = None if lost_reply else self.stored

    def receive(self, piece: PieceHeader, data: bytes, *, is_last: bool) -> None:
        if piece.offset >= self.stored.end and (data or is_last):
            self.pieces.append((piece, data))
            self.stored = Position(end=piece.end, source=piece.source + piece.size, is_whole=is_last)


@given(LINES, st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=60), st.sampled_from([20, 40, 10**6]))
def test_what_is_sent_is_the_log_whatever_is_lost_on_the_way(
    lines: list[bytes], steps: list[tuple[int, bool]], most_behind: int
) -> None:
    text, shipment = b"".join(lines), Shipment(most_behind)
    for grown, lost_reply in steps:
        shipment.file = text[: len(shipment.file) + grown]
        shipment.send(lost_reply=lost_reply)
    shipment.file, shipment.ended = text, True
    for _ in range(len(text) + 2):
        shipment.send()

    assert shipment.stored.is_whole
    assert shipment.stored.end == len(text)
    for piece, data in shipment.pieces:
        assert text[piece.offset : piece.end] == data
    if most_behind == 10**6:
        log = stitch([piece for piece, _ in shipment.pieces], note)
        read = [log.read(extent, extent.start, 10**6, lambda n: shipment.pieces[n][1]) for extent in log.extents]
        assert b"".join(read) == text


@given(LINES, SPANS, st.integers(1, 40))
def test_each_byte_that_is_kept_is_read_once_at_its_place(
    lines: list[bytes], spans: list[tuple[int, int]], limit: int
) -> None:
    text = b"".join(lines)
    kept = [(start, min(start + size, len(text))) for start, size in spans if start < len(text)]
    log = stitch([header(start, end - start) for start, end in kept], note)
    notes = {at for extent in log.extents for at in range(extent.start, extent.start + len(extent.note))}

    offset, seen = 0, set[int]()
    while (extent := log.extent_at(offset)) is not None:
        start = max(offset, extent.start)
        data = log.read(extent, start, limit, lambda number: text[kept[number][0] : kept[number][1]])
        assert 0 < len(data) <= limit
        for at, byte in enumerate(data, start):
            assert at not in seen
            assert at in notes or text[at] == byte
            seen.add(at)
        offset = start + len(data)

    assert seen - notes == {at for start, end in kept for at in range(start, end)}


@given(LINES, SPANS, st.integers(1, 4))
def test_a_search_finds_the_same_in_both_directions(
    lines: list[bytes], spans: list[tuple[int, int]], limit: int
) -> None:
    text = b"".join(lines)
    kept = [(start, min(start + size, len(text))) for start, size in spans if start < len(text)]
    log = stitch([header(start, end - start) for start, end in kept], note)
    view = log.view(lambda number: text[kept[number][0] : kept[number][1]], True, int)

    def walk(*, backwards: bool) -> bytes:
        found, offset = b"", 2**53 if backwards else 0
        for _ in range(200):
            wanted = Search(selection=Selection(), offset=offset, limit=limit, most_bytes=99, backwards=backwards)
            step = view.search(wanted)
            data = b"".join(record.data for record in step.records)
            found = data + found if backwards else found + data
            following = step.start if backwards else step.end
            if following == offset or (backwards and following == 0):
                return found
            offset = following
        raise AssertionError("the search does not end")

    expected = b"".join(
        log.read(extent, extent.start, 10**6, lambda number: text[kept[number][0] : kept[number][1]])
        for extent in log.extents
    )
    assert walk(backwards=False) == expected
    assert walk(backwards=True) == expected


SEGMENTS = st.lists(
    st.builds(
        Segment,
        log=st.sampled_from(["a", "b", "c"]),
        start=st.integers(0, 20),
        epoch=st.just(1),
        stored=st.integers(1, FILE_COST),
        changed_ms=st.integers(0, 50),
    ),
    max_size=20,
    unique_by=lambda segment: (segment.log, segment.start),
)


@given(SEGMENTS, st.integers(0, 20 * FILE_COST), st.integers(0, 20))
def test_what_is_dropped_makes_room_and_no_more(segments: list[Segment], most: int, oldest: int) -> None:
    dropped = surplus(segments, most, oldest)
    left = [segment for segment in segments if segment not in dropped]
    young = [segment for segment in segments if segment.changed_ms >= oldest]

    assert len(set(dropped)) == len(dropped)
    assert sum(segment.cost for segment in left) <= most or len(left) <= 1
    assert all(segment in dropped for segment in segments if segment not in young)
    for_room = [segment for segment in dropped if segment in young]
    if for_room:
        assert sum(segment.cost for segment in [*left, for_room[-1]]) > most
