"""Webhooks to a real web server on loopback: signed, in order, and again after failures."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

import pytest
from structlog.testing import capture_logs

from emberkeep.notifications.model import EventKind
from emberkeep.notifications.outbox import Counts
from tests.unit.adapters.webhooks.receiver import (
    LOST,
    SECRET,
    SLOW,
    MemoryNotices,
    delivering,
    notification,
    receiving,
)
from tests.unit.rest.server import eventually


async def test_an_event_is_sent_as_json_with_a_signature_that_the_receiver_can_verify() -> None:
    async with receiving() as receiver, delivering(receiver.url) as webhook:
        webhook.notify(notification())
        await eventually(lambda: webhook.counts.delivered == 1)
    (request,) = receiver.received
    assert request.json() == {
        "id": "store-3-1",
        "event": "alarm-raised",
        "time_ms": 1_795_000_000_000,
        "job": {"id": "a" * 32, "name": "flüge", "namespace": "team-a", "attempt": 2},
        "message": "no micro-batch was committed for 301 s",
        "alarm": "no-commit",
        "query": "delays",
        "version": 1,
    }
    headers = request.headers
    assert (headers["Content-Type"], headers["X-Emberkeep-Event"]) == ("application/json", "alarm-raised")
    signed = headers["X-Emberkeep-Timestamp"].encode() + b"." + request.body
    assert headers["X-Emberkeep-Signature"] == f"sha256={hmac.new(SECRET, signed, hashlib.sha256).hexdigest()}"


@pytest.mark.parametrize("failure", [LOST, SLOW, 500, 503, 429, 408, 302])
async def test_an_event_is_sent_again_with_the_same_id_until_it_is_taken(failure: int) -> None:
    async with (
        receiving(failure, failure) as receiver,
        delivering(receiver.url, timeout=0.2 if failure == SLOW else 10.0) as webhook,
    ):
        webhook.notify(notification(1))
        webhook.notify(notification(2))
        await eventually(lambda: webhook.counts.delivered == 2)
    assert receiver.ids() == ["store-3-1"] * 3 + ["store-3-2"]
    assert {request.body for request in receiver.received[:3]} == {receiver.received[0].body}
    assert webhook.counts == Counts(delivered=2, failures=2)


async def test_an_event_that_the_receiver_refuses_does_not_hold_up_the_next_one() -> None:
    async with receiving(400) as receiver, delivering(receiver.url) as webhook:
        webhook.notify(notification(1))
        webhook.notify(notification(2))
        await eventually(lambda: webhook.counts.delivered == 1)
    assert receiver.ids() == ["store-3-1", "store-3-2"]
    assert webhook.counts == Counts(delivered=1, failures=1, dropped=1)


async def test_a_receiver_that_is_away_for_too_long_misses_the_event() -> None:
    async with receiving() as receiver:
        url = receiver.url
    async with delivering(url, patience=0.05) as webhook:  # nobody listens there any more
        webhook.notify(notification())
        await eventually(lambda: webhook.counts.dropped == 1)
        assert webhook.waiting == 0


async def test_a_receiver_that_comes_back_gets_what_it_has_missed_up_to_the_bound() -> None:
    async with receiving(SLOW) as receiver, delivering(receiver.url, queue=3, timeout=0.5) as webhook:
        webhook.notify(notification(1))
        await receiver.gets(1)
        for number in range(2, 8):
            webhook.notify(notification(number))
        assert webhook.waiting == 3
        await eventually(lambda: webhook.counts.delivered == 3)
    assert receiver.ids() == [f"store-3-{number}" for number in (1, 1, 6, 7)]
    assert webhook.counts.dropped == 4


async def test_only_the_events_that_were_asked_for_are_sent() -> None:
    async with (
        receiving() as receiver,
        delivering(receiver.url, events=frozenset({EventKind.JOB_FAILED})) as webhook,
    ):
        webhook.notify(notification(1, EventKind.JOB_RESTARTING))
        webhook.notify(notification(2, EventKind.JOB_FAILED))
        await eventually(lambda: webhook.counts.delivered == 1)
    assert receiver.ids() == ["store-3-2"]


async def test_the_log_does_not_quote_the_address_of_a_receiver_that_answers_with_something_else_than_http() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with capture_logs() as lines:
            async with delivering(f"http://127.0.0.1:{port}/a-secret-path", patience=0.05) as webhook:
                webhook.notify(notification())
                await eventually(lambda: webhook.counts.dropped == 1)
    assert [line["reason"] for line in lines if "reason" in line] == ["its answer is not HTTP"]
    assert "a-secret-path" not in str(lines)


async def test_the_next_leader_sends_what_waited_before_its_own_events() -> None:
    notices = MemoryNotices()
    async with receiving(SLOW) as receiver, delivering(receiver.url, notices) as webhook:
        webhook.notify(notification(1))
        webhook.notify(notification(2))
        await eventually(lambda: notices.ids() == ["store-3-1", "store-3-2"])
    notices.away = 1  # the next leader finds the storage at its second try
    async with receiving() as receiver, delivering(receiver.url, notices, epoch=2) as webhook:
        await receiver.gets(2)
        webhook.notify(notification(3))
        await eventually(lambda: receiver.ids() == ["store-3-1", "store-3-2", "store-3-3"])
        await eventually(lambda: notices.kept == {2: []})
    async with receiving() as receiver, delivering(receiver.url, notices, epoch=3) as webhook:
        webhook.notify(notification(4))
        await eventually(lambda: receiver.ids() == ["store-3-4"])


async def test_what_waits_when_a_leader_ends_in_order_is_kept() -> None:
    notices = MemoryNotices()
    async with receiving(SLOW) as receiver, delivering(receiver.url, notices) as webhook:
        webhook.notify(notification(1))
        await receiver.gets(1)
        webhook.notify(notification(2))
    assert notices.ids() == ["store-3-1", "store-3-2"]


async def test_a_storage_that_is_away_holds_up_no_event() -> None:
    notices = MemoryNotices(away=1_000_000)
    async with receiving() as receiver, delivering(receiver.url, notices) as webhook:
        webhook.notify(notification(1))
        await eventually(lambda: webhook.counts.delivered == 1)
