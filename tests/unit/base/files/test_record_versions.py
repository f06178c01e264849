"""Records of other releases: older ones are migrated, newer ones are left alone, unknown fields survive a rewrite."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Damaged, Fatal, NewerFormat
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.base.files.kept_fields import encode_kept

pytestmark = pytest.mark.req("SAFE-14")


class Leaf(Compatible, frozen=True, kw_only=True):
    name: str
    size: int = 0


class Record(Compatible, frozen=True, kw_only=True):
    number: int
    canceled: bool = False
    leaf: Leaf | None = None
    leaves: tuple[Leaf, ...] = ()


def _rewritten(read: Mapping[str, object], value: Record, *, within: tuple[str, ...] = ()) -> object:
    return msgspec.json.decode(encode_kept(value, msgspec.json.encode(read), within=within))


class TestVersions:
    def test_an_older_record_goes_through_every_step(self) -> None:
        steps = {1: lambda payload: payload + b" two", 2: lambda payload: payload + b" three"}
        assert decode_record(encode_record("k", 1, b"one"), "k", 3, steps, where="w") == b"one two three"
        assert decode_record(encode_record("k", 3, b"3"), "k", 3, steps, where="w") == b"3"

    def test_one_that_is_older_than_all_steps_is_not_damaged(self) -> None:
        with pytest.raises(Fatal, match="w: k version 1 is too old") as raised:
            decode_record(encode_record("k", 1, b"1"), "k", 3, {2: bytes}, where="w")
        assert not isinstance(raised.value, Damaged)

    def test_a_newer_one_is_neither_damaged_nor_unknown(self) -> None:
        with pytest.raises(NewerFormat, match="w: k version 3 was written by a newer release"):
            decode_record(encode_record("k", 3, b""), "k", 2, where="w")

    def test_a_payload_that_does_not_fit_its_version_is_damaged(self) -> None:
        with pytest.raises(Damaged, match="not a valid k of version 1"):
            decode_record(encode_record("k", 1, b"x"), "k", 2, {1: lambda data: str(int(data)).encode()}, where="w")


class TestUnknownFields:
    def test_they_are_ignored_at_every_depth(self) -> None:
        data = b'{"number":1,"new":2,"leaf":{"name":"a","new":3},"leaves":[{"name":"b","new":4}]}'
        expected = Record(number=1, leaf=Leaf(name="a"), leaves=(Leaf(name="b"),))
        assert msgspec.json.decode(data, type=Record) == expected

    def test_what_uses_no_new_field_looks_as_before(self) -> None:
        assert msgspec.json.encode(Record(number=1)) == b'{"number":1}'

    def test_a_rewrite_keeps_those_of_the_record(self) -> None:
        assert _rewritten({"number": 1, "new": {"a": 1}}, Record(number=2)) == {"number": 2, "new": {"a": 1}}

    def test_a_rewrite_keeps_those_of_what_stays_the_same_inside(self) -> None:
        read = {"number": 1, "leaf": {"name": "a", "new": 1}, "leaves": [{"name": "b", "new": 2}, {"name": "c"}]}
        value = Record(number=2, leaf=Leaf(name="a"), leaves=(Leaf(name="d"), Leaf(name="b")))
        leaves = [{"name": "d"}, {"name": "b", "new": 2}]
        assert _rewritten(read, value) == {"number": 2, "leaf": {"name": "a", "new": 1}, "leaves": leaves}

    def test_those_of_what_is_replaced_go(self) -> None:
        read = {"number": 1, "leaf": {"name": "a", "new": 1}, "leaves": [{"name": "b", "new": 2}]}
        value = Record(number=1, leaf=Leaf(name="z"), leaves=(Leaf(name="b", size=9),))
        leaves = [{"name": "b", "size": 9}]
        assert _rewritten(read, value) == {"number": 1, "leaf": {"name": "z"}, "leaves": leaves}

    def test_those_of_an_object_that_goes_on_are_kept_when_it_changes(self) -> None:
        read = {"number": 1, "leaf": {"name": "a", "new": 1}}
        value = Record(number=1, leaf=Leaf(name="z"))
        assert _rewritten(read, value, within=("leaf",)) == {"number": 1, "leaf": {"name": "z", "new": 1}}

    def test_a_field_that_gets_its_default_again_is_not_brought_back(self) -> None:
        read = {"number": 1, "canceled": True, "leaf": {"name": "a"}, "new": 1}
        assert _rewritten(read, Record(number=1)) == {"number": 1, "new": 1}

    def test_a_default_that_was_written_out_does_not_win(self) -> None:
        read = {"number": 1, "canceled": False, "leaf": None}
        value = Record(number=1, canceled=True, leaf=Leaf(name="a"))
        assert _rewritten(read, value) == {"number": 1, "canceled": True, "leaf": {"name": "a"}}
