"""Of what is heard about the leader, what is believed."""

from __future__ import annotations

import pytest

from emberkeep.leadership.model import LeaderAddress, LeaderNews
from emberkeep.leadership.news import MOST_JOB_MANAGERS, joined

pytestmark = pytest.mark.req("SAFE-11")

OLD, NEW = LeaderAddress(3, "a:1"), LeaderAddress(4, "b:1")


@pytest.mark.parametrize(
    ("known", "heard", "leader"),
    [
        (None, None, None),
        (None, OLD, OLD),
        (OLD, None, OLD),
        (OLD, NEW, NEW),
        (NEW, OLD, NEW),
        (NEW, LeaderAddress(4, "c:1"), NEW),
    ],
)
def test_the_higher_epoch_is_right_whoever_tells_of_it(
    known: LeaderAddress | None, heard: LeaderAddress | None, leader: LeaderAddress | None
) -> None:
    assert joined(LeaderNews(known), LeaderNews(heard)).leader == leader


def test_addresses_are_kept_the_newest_first_and_no_more_than_so_many() -> None:
    known = joined(LeaderNews(), LeaderNews(OLD, ("a:1", "c:1")))
    assert known.job_managers == ("a:1", "c:1")
    known = joined(known, LeaderNews(NEW, ("d:1", "")))
    assert known.job_managers == ("b:1", "d:1", "a:1", "c:1")
    many = tuple(f"m:{number}" for number in range(MOST_JOB_MANAGERS))
    known = joined(known, LeaderNews(None, many))
    assert known.job_managers == ("b:1", *many[:-1])


def test_an_older_leader_is_one_more_address() -> None:
    assert joined(LeaderNews(NEW), LeaderNews(OLD)) == LeaderNews(NEW, ("b:1", "a:1"))
