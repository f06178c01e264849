"""A savepoint counts as verified when all of its files were read, in however many requests."""

from __future__ import annotations

import pytest

from emberkeep.lifecycle.verifications import MOST_KEPT, ReadFiles, Verification, Verifications

PATH = "/savepoints/savepoint-1"


def part(first: int, files: int, *problems: str, total: int = 5) -> ReadFiles:
    return ReadFiles(first=first, files=files, total=total, size=10 * files, problems=problems)


def after(*parts: ReadFiles) -> Verification | None:
    known = Verifications()
    for now_ms, read in enumerate(parts):
        known.note(PATH, read, now_ms)
    return known.of(PATH)


def test_the_parts_add_up() -> None:
    assert after(part(0, 2), part(2, 2)) is None
    assert after(part(0, 2), part(2, 2), part(4, 1)) == Verification(time_ms=2, files=5, size=50)
    assert after(part(0, 5)) == Verification(time_ms=0, files=5, size=50)


def test_problems_of_all_parts_count_and_the_first_is_named() -> None:
    found = after(part(0, 2, "a is missing", "b is missing"), part(2, 3, "c was changed"))
    assert found == Verification(time_ms=1, files=5, size=50, problems=3, problem="a is missing")


@pytest.mark.parametrize(
    "parts",
    [
        (part(2, 3),),
        (part(0, 2), part(3, 2)),
        (part(0, 2), part(2, 2), part(2, 2), part(4, 1)),
    ],
    ids=["no begin", "a gap", "the same part twice"],
)
def test_what_was_not_read_in_order_is_not_verified(parts: tuple[ReadFiles, ...]) -> None:
    assert after(*parts) is None


def test_another_begin_replaces_an_unfinished_verification() -> None:
    assert after(part(0, 2, "a is missing"), part(0, 2), part(2, 3)) == Verification(time_ms=2, files=5, size=50)


def test_the_newest_result_stays_until_the_next_is_complete() -> None:
    assert after(part(0, 5), part(0, 2, "a is missing")) == Verification(time_ms=0, files=5, size=50)


def test_a_savepoint_whose_manifest_is_damaged_or_gone_has_a_problem() -> None:
    assert after(part(0, 0, "the savepoint is damaged", total=0)) == Verification(
        time_ms=0, files=0, size=0, problems=1, problem="the savepoint is damaged"
    )
    known = Verifications()
    known.note(PATH, part(0, 5), 1)
    known.note_absent(PATH, "no savepoint exists there", 2)
    assert known.of(PATH) == Verification(time_ms=2, files=0, size=0, problems=1, problem="no savepoint exists there")


def test_a_location_may_be_written_in_another_form() -> None:
    known = Verifications()
    known.note(f"file://{PATH}/", part(0, 5), 1)
    assert known.of(PATH) is not None
    known.forget(f"file:{PATH}")
    assert known.of(PATH) is None


def test_only_the_newest_are_kept() -> None:
    known = Verifications()
    for number in range(MOST_KEPT + 1):
        known.note(f"/s/{number}", part(0, 5), number)
        known.note(f"/begun/{number}", part(0, 2), number)
    assert known.of("/s/0") is None
    assert known.of("/s/1") is not None
    known.note("/begun/0", part(2, 3), 1)
    known.note("/begun/1", part(2, 3), 1)
    assert (known.of("/begun/0"), known.of("/begun/1") is None) == (None, False)
