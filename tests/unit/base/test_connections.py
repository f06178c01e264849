"""The table of a port's connections: which one makes room, and how many there may be."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.base.connections import ConnectionLimits, Connections, Rejection, process_limits

pytestmark = pytest.mark.req("SEC-6")

LIMITS = ConnectionLimits(open=8, unproven=6, unproven_of_address=3)


@dataclass(eq=False)
class Peer:
    address: str
    dropped: list[Peer] = field(default_factory=list)

    def drop(self) -> None:
        self.dropped.append(self)


class Door:
    """Admits peers, and knows who was dropped."""

    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.connections = Connections(limits)
        self.dropped: list[Peer] = []

    def comes(self, address: str) -> Peer:
        peer = Peer(address, self.dropped)
        assert self.connections.admit(peer)
        return peer

    def enters(self, address: str) -> Peer:
        """Come, and log in."""
        peer = self.comes(address)
        self.connections.prove(peer)
        return peer


@pytest.mark.parametrize("descriptors", [256, 1024, 4096, 65_536, 2**20])
def test_a_process_keeps_a_quarter_of_its_descriptors_for_its_own_work(descriptors: int) -> None:
    limits = process_limits(descriptors)
    assert limits.open <= descriptors * 3 // 4
    assert 2 * limits.unproven <= limits.open // 2, "a process may have several ports"
    assert 16 <= limits.unproven_of_address < limits.unproven


@given(st.integers(1, 300))
def test_limits_of_a_process_with_few_descriptors_let_somebody_in(descriptors: int) -> None:
    limits = process_limits(descriptors)
    assert limits.open >= limits.unproven > limits.unproven_of_address >= 1


def test_connections_with_a_login_are_not_limited_by_address() -> None:
    door = Door()
    for _ in range(LIMITS.open):
        door.enters("10.0.0.1")
    assert not door.dropped
    assert (door.connections.proven, door.connections.unproven) == (LIMITS.open, 0)


def test_all_addresses_of_an_ipv6_network_count_as_one() -> None:
    door = Door()
    first = door.comes("2001:db8::1")
    for number in range(2, 5):
        door.comes(f"2001:db8::{number}")
    assert door.dropped == [first]


@pytest.mark.parametrize("address", ["::ffff:10.0.0.1", "fe80::1%eth0", "not an address"])
def test_every_form_of_address_is_counted(address: str) -> None:
    door = Door()
    first = door.comes(address)
    for _ in range(3):
        door.comes(address)
    assert door.dropped == [first]


def test_ipv4_addresses_in_ipv6_form_are_different_clients() -> None:
    door = Door()
    for number in range(5):
        door.comes(f"::ffff:10.0.0.{number}")
    assert not door.dropped


def test_an_ended_connection_frees_its_place() -> None:
    door = Door()
    for _ in range(10):
        door.connections.end(door.comes("10.0.0.1"))
        door.connections.end(door.enters("10.0.0.1"))
    assert not door.dropped
    assert (door.connections.proven, door.connections.unproven) == (0, 0)


def test_a_login_of_a_connection_that_was_displaced_counts_for_nothing() -> None:
    door = Door()
    first = door.comes("10.0.0.1")
    for _ in range(3):
        door.comes("10.0.0.1")
    door.connections.prove(first)
    door.connections.reject(first, Rejection.NO_LOGIN)
    assert (door.connections.proven, door.connections.unproven) == (0, 3)
    assert door.connections.rejections() == {"displaced": 1, "full": 0, "no_login": 0, "large_head": 0}


@given(st.lists(st.tuples(st.sampled_from(["comes", "enters", "ends"]), st.integers(0, 9)), max_size=80))
def test_no_sequence_exceeds_a_limit(steps: list[tuple[str, int]]) -> None:
    connections, dropped, peers = Connections(LIMITS), list[Peer](), list[Peer]()
    for step, number in steps:
        if step == "ends" and peers:
            connections.end(peers.pop(number % len(peers)))
            continue
        peer = Peer(f"10.0.0.{number % 4}", dropped)
        if connections.admit(peer):
            peers.append(peer)
            if step == "enters":
                connections.prove(peer)
        assert connections.unproven <= LIMITS.unproven
        assert connections.proven + connections.unproven <= LIMITS.open
    open_peers = [peer for peer in peers if peer not in dropped]
    assert len(open_peers) == connections.proven + connections.unproven
