"""The format of stored pieces."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.adapters.kept_logs import segments
from emberkeep.adapters.kept_logs.segments import check_piece, decompress, encode_piece, scan_segment
from emberkeep.base.errors import Damaged, InvalidInput, NewerFormat
from emberkeep.kept_logs.model import PIECE_BYTES, LogPiece
from tests.support.kept_logs.pieces import piece

FIRST, SECOND, THIRD = piece(0, b"one\n"), piece(4, b"two\n"), piece(8, b"three\n", is_last=True)
CONTENT = b"".join(encode_piece(each) for each in (FIRST, SECOND, THIRD))


def test_pieces_are_found_with_their_data() -> None:
    scanned = scan_segment(CONTENT, "here")

    assert [each.header for each in scanned.pieces] == [FIRST.header, SECOND.header, THIRD.header]
    assert [decompress(CONTENT[each.at : each.at + each.size], each.header, "here") for each in scanned.pieces] == [
        b"one\n",
        b"two\n",
        b"three\n",
    ]
    assert (scanned.end, scanned.damaged) == (len(CONTENT), False)


def test_an_empty_segment_has_no_pieces() -> None:
    assert scan_segment(b"", "here").pieces == ()
    assert not scan_segment(b"", "here").damaged


@pytest.mark.parametrize("length", range(len(CONTENT)))
def test_a_torn_segment_keeps_its_whole_pieces(length: int) -> None:
    scanned = scan_segment(CONTENT[:length], "here")

    assert [each.header for each in scanned.pieces] == [
        each.header
        for number, each in enumerate((FIRST, SECOND, THIRD))
        if length >= sum(len(encode_piece(other)) for other in (FIRST, SECOND, THIRD)[: number + 1])
    ]
    assert scanned.damaged == (scanned.end != length)


@pytest.mark.parametrize("at", range(len(encode_piece(FIRST)), len(encode_piece(FIRST)) + len(encode_piece(SECOND))))
def test_a_damaged_piece_is_passed_over(at: int) -> None:
    damaged = bytearray(CONTENT)
    damaged[at] ^= 0x40

    scanned = scan_segment(bytes(damaged), "here")  # a damaged version is not a newer one
    headers = [each.header for each in scanned.pieces]
    assert headers == [FIRST.header, THIRD.header]
    assert scanned.damaged


def test_a_newer_format_is_not_taken_for_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "VERSION", 2)
    newer = encode_piece(FIRST)
    monkeypatch.undo()

    with pytest.raises(NewerFormat, match="format 2"):
        scan_segment(newer, "here")


def test_bytes_that_differ_from_their_digest_are_damaged() -> None:
    header = msgspec.structs.replace(FIRST.header, digest="0" * 64)

    with pytest.raises(Damaged):
        decompress(FIRST.data, header, "here")
    with pytest.raises(Damaged):
        decompress(b"no zlib", FIRST.header, "here")


def test_a_received_piece_is_checked() -> None:
    check_piece(FIRST)
    check_piece(piece(0, b""))
    wrong = [
        LogPiece(header=FIRST.header, data=SECOND.data),
        LogPiece(header=msgspec.structs.replace(FIRST.header, size=PIECE_BYTES + 1), data=FIRST.data),
        LogPiece(header=msgspec.structs.replace(FIRST.header, offset=-1), data=FIRST.data),
        LogPiece(header=msgspec.structs.replace(FIRST.header, digest="x"), data=FIRST.data),
        LogPiece(header=FIRST.header, data=bytes(PIECE_BYTES * 2)),
        piece(0, bytes(PIECE_BYTES + 1)),
    ]
    for each in wrong:
        with pytest.raises(InvalidInput):
            check_piece(each)
