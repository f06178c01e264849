"""Downloads are sent on to caches that are done, so that the server's share does not grow with their number."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from emberkeep.base.ids import JobId
from emberkeep.blobs.model import permanent
from emberkeep.blobs.peers import CHILDREN, Direct, Peers

pytestmark = pytest.mark.req("BLOB-22")

JOB, KEY, SIZE = JobId("1" * 32), permanent("a" * 64), 256 * 1024**2


def test_the_first_are_served_here_and_the_next_wait_for_them() -> None:
    peers = Peers(2)
    assert [peers.ask(JOB, KEY, name) for name in "abc"] == [Direct.SERVE, Direct.SERVE, Direct.WAIT]
    peers.served(JOB, KEY, "a", complete=True)
    assert peers.ask(JOB, KEY, "c") == "a"


def test_a_broken_off_download_gives_its_place_back_and_makes_no_peer() -> None:
    peers = Peers(1)
    assert peers.ask(JOB, KEY, "a") is Direct.SERVE
    peers.served(JOB, KEY, "a", complete=False)
    assert peers.ask(JOB, KEY, "b") is Direct.SERVE


def test_children_are_spread_and_a_peer_has_few() -> None:
    peers = Peers(1)
    for peer in "ab":
        peers.ready(JOB, KEY, peer)
    sent = [peers.ask(JOB, KEY, f"child-{number}") for number in range(2 * CHILDREN + 1)]
    assert Counter(sent) == {"a": CHILDREN, "b": CHILDREN, Direct.WAIT: 1}
    peers.ready(JOB, KEY, "child-0")
    assert peers.ask(JOB, KEY, "late") == "child-0"


def test_a_peer_that_fails_somebody_is_not_named_again() -> None:
    peers = Peers(1)
    peers.ready(JOB, KEY, "bad")
    assert peers.ask(JOB, KEY, "a") == "bad"
    peers.insist(JOB, KEY, "a")
    peers.served(JOB, KEY, "a", complete=True)
    assert peers.ask(JOB, KEY, "b") == "a"
    assert peers.ask(JOB, KEY, "bad") == "a", "nor does it have the BLOB"


def test_nobody_waits_for_ever_for_children_that_have_vanished() -> None:
    peers = Peers(1, children=1, patience=3)
    peers.ready(JOB, KEY, "a")
    assert peers.ask(JOB, KEY, "vanishes") == "a"
    assert [peers.ask(JOB, KEY, "b") for _ in range(4)] == [Direct.WAIT] * 3 + ["a"]


def test_whoever_got_the_blob_and_lost_it_waits_as_long_as_the_others() -> None:
    peers = Peers(1, children=1, patience=3)
    peers.ready(JOB, KEY, "a")
    assert peers.ask(JOB, KEY, "child") == "a"
    assert [peers.ask(JOB, KEY, "b") for _ in range(2)] == [Direct.WAIT] * 2
    peers.ready(JOB, KEY, "b")
    assert [peers.ask(JOB, KEY, "b") for _ in range(4)] == [Direct.WAIT] * 3 + ["a"]


def test_a_lost_task_manager_is_no_peer_and_nobody_s_child() -> None:
    peers = Peers(1, children=1)
    peers.ready(JOB, KEY, "a")
    assert peers.ask(JOB, KEY, "b") == "a"
    peers.forget_peer("b")
    assert peers.ask(JOB, KEY, "c") == "a"
    peers.forget_peer("a")
    assert peers.ask(JOB, KEY, "d") is Direct.SERVE


def test_nothing_is_remembered_of_what_is_deleted() -> None:
    peers = Peers(1)
    for peer in "ab":
        peers.ready(JOB, KEY, peer)
    peers.forget(JOB)
    assert peers.ask(JOB, KEY, "c") is Direct.SERVE
    peers.served(JOB, KEY, "c", complete=False)
    assert not peers._swarms


@dataclass
class Fleet:
    """Caches that all want one BLOB, in rounds: a round is as long as one transfer."""

    caches: int
    losses: float
    peers: Peers = field(default_factory=lambda: Peers(4))
    served: int = 0  # by the server
    children: Counter[str] = field(default_factory=Counter)
    rounds: int = 0

    def run(self, rng: random.Random) -> None:
        wanting = [f"cache-{number}" for number in range(self.caches)]
        while wanting:
            self.rounds += 1
            assert self.rounds < 500, f"{len(wanting)} caches never get it"
            rng.shuffle(wanting)
            answers = {name: self.peers.ask(JOB, KEY, name) for name in wanting}
            busy = Counter(answer for answer in answers.values() if isinstance(answer, str))
            assert max(busy.values(), default=0) <= CHILDREN
            self.children += busy
            for name, answer in answers.items():
                if answer is not Direct.WAIT and self._transfer(name, answer, rng):
                    wanting.remove(name)

    def _transfer(self, name: str, source: str | Direct, rng: random.Random) -> bool:
        whole = rng.random() >= self.losses
        if source is Direct.SERVE:
            self.served += 1
            self.peers.served(JOB, KEY, name, complete=whole)
        elif whole:
            self.peers.ready(JOB, KEY, name)
        else:  # its peer broke off
            self.peers.insist(JOB, KEY, name)
            self.served += 1
            self.peers.served(JOB, KEY, name, complete=True)
            return True
        return whole


@pytest.mark.parametrize("caches", [1, 2, 10, 100, 1000])
def test_the_servers_bytes_stay_flat_from_1_to_1000_caches(caches: int) -> None:
    fleet = Fleet(caches, losses=0.0)
    fleet.run(random.Random(caches))
    assert fleet.served * SIZE <= 4 * SIZE
    assert fleet.rounds <= 2 + caches.bit_length(), "the sources grow like a tree"
    assert sum(fleet.children.values()) == caches - fleet.served


def test_a_fleet_on_a_bad_network_is_served_as_well() -> None:
    fleet = Fleet(1000, losses=0.05)
    fleet.run(random.Random(1))
    assert fleet.served < 150, "about one for each transfer that broke off, not one for each cache"
