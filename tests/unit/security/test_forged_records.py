"""Who can write to ZooKeeper names himself as leader: processes must not follow him, let alone send him the token."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest
from structlog.testing import capture_logs

from emberkeep.adapters.zookeeper.access.signatures import (
    NotAuthentic,
    RecordSigner,
    UnsignedRecords,
    content_of,
    signing_key,
)
from emberkeep.adapters.zookeeper.layout import LatchRecord, LeaderRecord, ZooKeeperLayout, encode_node
from emberkeep.adapters.zookeeper.leader_locators import ZooKeeperLocator, read_leader
from emberkeep.adapters.zookeeper.session import SessionState, Znode, ZooKeeperSession
from emberkeep.leadership.model import LeaderAddress

pytestmark = [pytest.mark.req("SEC-2")]

LAYOUT = ZooKeeperLayout("emberkeep", "one")
OURS = RecordSigner(signing_key("token"))
ATTACKER = "attacker:666"


@dataclass
class Tree:
    """The nodes of a ZooKeeper, as one process with ``signer`` reads them. Anyone may write them."""

    signer: RecordSigner = field(default_factory=lambda: RecordSigner(signing_key("token")))
    state: SessionState = SessionState.CONNECTED
    nodes: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    watches: list[Callable[[], None]] = field(default_factory=list)

    def write(self, path: str, stored: bytes) -> None:
        version = self.nodes[path][1] + 1 if path in self.nodes else 0
        self.nodes[path] = (stored, version)
        watches, self.watches = self.watches, []
        for watch in watches:
            watch()

    async def find(self, path: str, *, watch: Callable[[], None] | None = None) -> Znode | None:
        if watch is not None:
            self.watches.append(watch)
        if path not in self.nodes:
            return None
        stored, version = self.nodes[path]
        return Znode(path, stored, version, 1, 0, 1, self.signer)

    async def children(self, path: str, *, watch: Callable[[], None] | None = None) -> list[str]:
        if watch is not None:
            self.watches.append(watch)
        return sorted(each.removeprefix(f"{path}/") for each in self.nodes if each.startswith(f"{path}/"))

    def lead(self, address: str, epoch: int) -> None:
        """Publish a leader as a JobManager does."""
        record = encode_node(LeaderRecord(address=address, life="a", epoch=epoch))
        self.write(LAYOUT.epoch, OURS.signed(LAYOUT.epoch, record))

    @property
    def session(self) -> ZooKeeperSession:
        return cast(ZooKeeperSession, self)


def forged(epoch: int = 0) -> bytes:
    return encode_node(LeaderRecord(address=ATTACKER, life="b", epoch=epoch))


async def rounds() -> None:
    """Let every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


FORGERIES = {
    "unsigned": forged(),
    "signed by another key": RecordSigner(signing_key("guessed")).signed(LAYOUT.epoch, forged(2)),
    "signed for another node": OURS.signed(LAYOUT.leader, forged(2)),
    "with a signature of something else": OURS.signed(LAYOUT.epoch, b"x").replace(b"\nx", b"\n") + forged(2),
    "with an empty signature": b"emberkeep-signed 1 \n" + forged(2),
    "without an end of the signature": b"emberkeep-signed 1 " + forged(2).replace(b"\n", b""),
}


@pytest.mark.anyio
@pytest.mark.parametrize("stored", FORGERIES.values(), ids=FORGERIES)
async def test_a_forged_leader_is_not_followed_and_the_node_is_named(stored: bytes) -> None:
    tree = Tree()
    tree.lead("jm-1:1", 0)
    tree.lead("jm-1:1", 1)
    locator = ZooKeeperLocator(tree.session, LAYOUT)
    with capture_logs() as logs:
        running = asyncio.create_task(locator.run())
        await rounds()
        assert locator.leader() == LeaderAddress(1, "jm-1:1")
        tree.write(LAYOUT.epoch, stored)
        await rounds()
        assert locator.leader() == LeaderAddress(1, "jm-1:1")
        errors = [each for each in logs if each["log_level"] == "error"]
        assert len(errors) == 1, "once, not in a loop"
        assert LAYOUT.epoch in errors[0]["reason"]
        tree.lead("jm-2:1", 3)
        await rounds()
    assert locator.leader() == LeaderAddress(3, "jm-2:1")
    running.cancel()


@pytest.mark.anyio
async def test_the_record_of_an_earlier_leader_cannot_be_put_back() -> None:
    """The earlier leader's address may be the attacker's by now."""
    tree = Tree()
    tree.lead("jm-1:1", 0)
    tree.lead("jm-1:1", 1)
    earlier = tree.nodes[LAYOUT.epoch][0]
    tree.lead("jm-2:1", 2)
    tree.write(LAYOUT.epoch, earlier)
    with pytest.raises(NotAuthentic, match="has version 3, but the record of epoch 1"):
        await read_leader(tree.session, LAYOUT, asyncio.Event())


@pytest.mark.anyio
async def test_a_forged_candidate_is_not_asked_who_leads() -> None:
    tree = Tree()
    latch = f"{LAYOUT.election}/latch-"
    tree.write(f"{latch}0000000001", OURS.signed(latch, encode_node(LatchRecord(address="jm-1:1"))))
    tree.write(f"{latch}0000000002", encode_node(LatchRecord(address=ATTACKER)))
    locator = ZooKeeperLocator(tree.session, LAYOUT)
    running = asyncio.create_task(locator.run())
    await rounds()
    assert locator.news().job_managers == locator.queue == ("jm-1:1",)
    running.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("rule", [UnsignedRecords.SIGN, UnsignedRecords.KEEP])
async def test_a_record_of_the_release_before_is_followed_if_the_operator_says_so(rule: UnsignedRecords) -> None:
    tree = Tree(RecordSigner(signing_key("token"), rule))
    tree.write(LAYOUT.epoch, encode_node(LeaderRecord(address="jm-1:1", life="a")))
    assert await read_leader(tree.session, LAYOUT, asyncio.Event()) == LeaderAddress(0, "jm-1:1")


def test_what_is_signed_is_read_and_nothing_is_signed_for_the_release_before() -> None:
    stored = OURS.signed("/a", b"content")
    assert OURS.checked("/a", stored) == content_of(stored) == b"content"
    assert RecordSigner(signing_key("token"), UnsignedRecords.KEEP).signed("/a", b"content") == b"content"
    assert OURS.checked("/a", b"") == OURS.signed("/a", b"") == b""


def test_after_it_has_signed_them_a_leader_trusts_no_unsigned_records() -> None:
    signer = RecordSigner(signing_key("token"), UnsignedRecords.SIGN)
    assert signer.checked("/a", b"old") == b"old"
    signer.refuse_unsigned()
    with pytest.raises(NotAuthentic, match="/a is not signed") as caught:
        signer.checked("/a", b"old")
    assert "high-availability.zookeeper.insecure-records" in str(caught.value.hint)


def test_the_key_does_not_reveal_the_token_and_differs_by_token() -> None:
    assert len(signing_key("token")) == 32
    assert signing_key("token") != signing_key("token2")
