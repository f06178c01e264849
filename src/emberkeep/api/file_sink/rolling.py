"""Decides which pieces are merged now, and into what. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import msgspec

from emberkeep.api.file_sink.model import FileFormat, Limits, PartFile, Piece, SinkState

FIRST_GROWTH = {FileFormat.PARQUET: 1.0, FileFormat.JSON: 4.0, FileFormat.CSV: 3.0}
_PIECES_PER_BUCKET = 64  # this many small pieces of a bucket are merged into one piece that continues to wait
_MOST_PIECES = 1_000  # in all buckets; every entry of the commit log lists each piece
_LARGE = 0.25  # share of the target size from which a piece becomes a part as is: merging would rewrite all its rows
_KEPT = 0.8  # weight of the growth learned so far, when a part shows a different one


class TakeAsPart(msgspec.Struct, frozen=True, kw_only=True):
    """Make this piece a part as it is."""

    piece: Piece


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """Merge these pieces, all of one bucket and schema, into one file: a part if ``is_part``, else another piece."""

    pieces: tuple[Piece, ...]
    is_part: bool


Work = TakeAsPart | Merge


def due(
    state: SinkState, limits: Limits, form: FileFormat, now_ms: int, *, through: int, everything: bool = False
) -> tuple[Work, ...]:
    """Return what to do with the pieces whose batches are committed, that is, those up to ``through``.

    ``everything``: all of them become parts, whatever their size.
    """
    ready = sorted((piece for piece in state.pieces if piece.last <= through), key=lambda piece: piece.bucket)
    buckets = {bucket: tuple(pieces) for bucket, pieces in groupby(ready, key=lambda piece: piece.bucket)}
    crowded = _crowded(buckets)
    work: list[Work] = []
    for bucket, pieces in buckets.items():
        whole = everything or bucket in crowded or _is_old(pieces, limits, now_ms)
        if whole or _is_large(pieces, limits, state.growth):
            work += _parts(pieces, limits, state.growth, form, whole=whole)
        elif len(pieces) >= _PIECES_PER_BUCKET:
            work += [Merge(pieces=group, is_part=False) for group in _by_schema(pieces) if len(group) > 1]
    return tuple(work)


def next_age_ms(state: SinkState, limits: Limits) -> int | None:
    """Return when the oldest piece becomes due because of its age (Unix milliseconds); None if it never does."""
    if limits.max_age_ms is None or not state.pieces:
        return None
    return min(piece.since_ms for piece in state.pieces) + limits.max_age_ms


def merged(pieces: Iterable[Piece], path: str, size: int) -> Piece:
    """Return the record of the piece at ``path``, of ``size`` bytes, into which ``pieces`` were merged."""
    pieces = tuple(pieces)
    rows = [piece.rows for piece in pieces if piece.rows is not None]
    return msgspec.structs.replace(
        pieces[0],
        first=min(piece.first for piece in pieces),
        last=max(piece.last for piece in pieces),
        path=path,
        size=size,
        since_ms=min(piece.since_ms for piece in pieces),
        rows=sum(rows) if len(rows) == len(pieces) else None,
    )


def rolled(state: SinkState, used: Iterable[Piece], made: Iterable[Piece], parts: Sequence[PartFile]) -> SinkState:
    """Return the state after ``used`` pieces were merged into pieces ``made`` and closed ``parts``."""
    gone = {piece.path for piece in used}
    return msgspec.structs.replace(
        state,
        pieces=(*(piece for piece in state.pieces if piece.path not in gone), *made),
        closed=(*state.closed, *parts),
        shown=max((state.shown, *(part.last for part in parts))),
    )


def grown(state: SinkState, pieces_size: int, part_size: int) -> SinkState:
    """Return the state after a part of ``part_size`` bytes was made from pieces of ``pieces_size`` bytes."""
    return msgspec.structs.replace(state, growth=_KEPT * state.growth + (1 - _KEPT) * part_size / max(pieces_size, 1))


def published(state: SinkState) -> SinkState:
    """Return the state in which the closed parts become visible."""
    return msgspec.structs.replace(state, moves=(*state.moves, *state.closed), closed=())


def needed(state: SinkState) -> frozenset[str]:
    """Return the files in the work directory that this state needs."""
    parts = (part.source for part in (*state.closed, *state.moves))
    return frozenset((*(piece.path for piece in state.pieces), *parts))


def _is_old(pieces: Sequence[Piece], limits: Limits, now_ms: int) -> bool:
    return limits.max_age_ms is not None and now_ms - min(piece.since_ms for piece in pieces) >= limits.max_age_ms


def _is_large(pieces: Sequence[Piece], limits: Limits, growth: float) -> bool:
    rows = sum(piece.rows or 0 for piece in pieces)
    size = growth * sum(piece.size for piece in pieces)
    return size >= limits.max_bytes or (limits.max_rows is not None and rows >= limits.max_rows)


def _crowded(buckets: dict[str, tuple[Piece, ...]]) -> frozenset[str]:
    """Return the buckets with the most pieces, until the others have at most _MOST_PIECES in total."""
    total = sum(map(len, buckets.values()))
    chosen = []
    for bucket in sorted(buckets, key=lambda name: len(buckets[name]), reverse=True):
        if total <= _MOST_PIECES:
            break
        chosen.append(bucket)
        total -= len(buckets[bucket])
    return frozenset(chosen)


def _parts(pieces: Sequence[Piece], limits: Limits, growth: float, form: FileFormat, *, whole: bool) -> list[Work]:
    """Return work that makes parts of about the target size.

    A remainder that is too small for a part continues to wait, unless ``whole`` is set.
    """
    large, small = _told_apart(pieces, limits, form)
    groups = [group for alike in _by_schema(small) for group in _packed(alike, limits, growth)]
    if not whole and len(large) + len(groups) > 1 and groups and not _is_large(groups[-1], limits, growth):
        groups.pop()
    return [*(TakeAsPart(piece=piece) for piece in large), *(_part(group, form) for group in groups)]


def _told_apart(
    pieces: Sequence[Piece], limits: Limits, form: FileFormat
) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return the pieces that are parts as they are, and those that must be merged."""
    least = _LARGE * limits.max_bytes if form is FileFormat.PARQUET else float("inf")
    large = tuple(piece for piece in pieces if piece.size >= least)
    return large, tuple(piece for piece in pieces if piece.size < least)


def _part(group: tuple[Piece, ...], form: FileFormat) -> Work:
    if len(group) == 1 and form is FileFormat.PARQUET:
        return TakeAsPart(piece=group[0])
    return Merge(pieces=group, is_part=True)


def _by_schema(pieces: Sequence[Piece]) -> list[tuple[Piece, ...]]:
    ordered = sorted(pieces, key=lambda piece: (piece.schema, piece.first))
    return [tuple(group) for _, group in groupby(ordered, key=lambda piece: piece.schema)]


def _packed(pieces: Sequence[Piece], limits: Limits, growth: float) -> list[tuple[Piece, ...]]:
    """Group consecutive pieces until the next piece would make a group too large."""
    groups: list[tuple[Piece, ...]] = []
    group: tuple[Piece, ...] = ()
    for piece in pieces:
        together = (*group, piece)
        size = growth * sum(one.size for one in together)
        rows = sum(one.rows or 0 for one in together)
        if group and (size > limits.max_bytes or (limits.max_rows is not None and rows > limits.max_rows)):
            groups.append(group)
            together = (piece,)
        group = together
    return [*groups, group]
