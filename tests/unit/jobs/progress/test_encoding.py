"""The written form of a history."""

from __future__ import annotations

import zlib

import pytest

from emberkeep.base.errors import Damaged, NewerFormat
from emberkeep.base.files.durable import encode_record
from emberkeep.jobs.progress import encoding
from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.encoding import KIND, VERSION, decode_progress, encode_progress
from emberkeep.jobs.progress.history import QueryHistory
from emberkeep.jobs.progress.kept_progress import KeptProgress
from tests.support.progress.records import record

HISTORY = KeptProgress(
    queries=(QueryHistory(query_id="q-1", records=(record(1), record(2))),),
    course=Course(began_ms=1_795_000_000_000, tasks=(3, 8), executors=(1, 2)),
)


def test_a_history_is_read_as_it_was_written() -> None:
    assert decode_progress(encode_progress(HISTORY), where="here") == HISTORY


def test_a_thousand_records_are_small() -> None:
    long = QueryHistory(query_id="q-1", records=tuple(record(number).as_older() for number in range(1000)))
    assert len(encode_progress(KeptProgress(queries=(long,)))) < 100_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        encode_progress(HISTORY)[:-1],
        encode_record(KIND, VERSION, b"not compressed"),
        encode_record(KIND, VERSION, zlib.compress(b"[1]")),
        encode_record(KIND, VERSION, zlib.compress(b'{"queries":[{"query_id":"q"}]}')),
        encode_record(KIND, VERSION, zlib.compress(b'{"queries":[]}')[:-2]),
        encode_progress(KeptProgress(queries=(), course=Course(began_ms=1, tasks=(1,), executors=()))),
        encode_progress(KeptProgress(queries=(), course=Course(began_ms=1, gc_ms=(1, 2), tasks=(1,), executors=(1,)))),
        encode_progress(KeptProgress(queries=(), course=Course(began_ms=1, step_ms=0, tasks=(1,), executors=(1,)))),
    ],
)
def test_damage_is_noticed(data: bytes) -> None:
    with pytest.raises(Damaged, match="here"):
        decode_progress(data, where="here")


def test_a_few_bytes_cannot_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MOST_BYTES", 1024**2)
    bomb = encode_record(KIND, VERSION, zlib.compress(b" " * 1024**2 + b'{"queries":[]}'))
    with pytest.raises(Damaged, match="more than 1 MiB"):
        decode_progress(bomb, where="here")


def test_a_newer_release_is_recognized() -> None:
    with pytest.raises(NewerFormat):
        decode_progress(encode_record(KIND, VERSION + 1, b""), where="here")


def test_a_query_without_records_is_left_out() -> None:
    empty = KeptProgress(queries=(QueryHistory(query_id="q", records=()),))
    assert decode_progress(encode_progress(empty), where="here") == KeptProgress(queries=())
