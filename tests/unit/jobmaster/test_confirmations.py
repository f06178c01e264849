"""A JobMaster asks the leader to confirm its attempt in time, and counts only what the leader has confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.jobmaster.lease import AttemptLease
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, JobMasterReply, RegisterJobMaster
from emberkeep.protocol.messages.root import Message
from tests.unit.jobmaster.test_service import INTERVAL, Bench, Run, reply, run

__all__ = ["run"]

pytestmark = pytest.mark.req("HA-7")

FREEZE = 4 * INTERVAL


def answer(bench: Bench, confirmed: Callable[[JobMasterHeartbeat], bool]) -> None:
    def to_heartbeat(request: Message) -> JobMasterReply:
        assert isinstance(request, JobMasterHeartbeat)
        return msgspec.structs.replace(reply(), confirmed=confirmed(request))

    bench.job_manager.answers[JobMasterHeartbeat] = to_heartbeat


def with_lease(bench: Bench) -> AttemptLease:
    lease = bench.service.master.link.lease = AttemptLease(FREEZE, bench.loop.time)
    return lease


def test_a_driver_that_a_leader_confirms_is_never_alone(run: Run) -> None:
    async def story(bench: Bench) -> None:
        lease = with_lease(bench)
        answer(bench, lambda request: request.asks_confirmation)
        for _ in range(100):
            await asyncio.sleep(INTERVAL / 2)
            assert lease.may_commit(lease.ask_to_commit())
        heartbeats = [each for each in bench.job_manager.requests if isinstance(each, JobMasterHeartbeat)]
        assert {each.asks_confirmation for each in heartbeats} == {True}

    run(story)


def test_replies_of_a_leader_that_its_store_does_not_confirm_do_not_count(run: Run) -> None:
    async def story(bench: Bench) -> None:
        lease = with_lease(bench)
        answer(bench, lambda _: False)
        await asyncio.sleep(INTERVAL)
        assert lease.may_commit(lease.ask_to_commit())
        bench.job_manager.answers[RegisterJobMaster] = RetryLater("this JobManager decides nothing")
        await asyncio.sleep(2 * FREEZE)
        assert not lease.may_commit(lease.ask_to_commit())
        last = bench.job_manager.requests[-1]
        assert isinstance(last, RegisterJobMaster), "a leader of each release confirms such a registration"
        assert last.in_doubt
        bench.job_manager.answers[RegisterJobMaster] = reply()
        await bench.until(lambda: lease.may_commit(lease.ask_to_commit()))

    run(story)


def test_the_lease_of_the_leader_applies_if_it_is_shorter(run: Run) -> None:
    """A leader that is about to start a newer attempt must not be overtaken by a commit of this one."""

    async def story(bench: Bench) -> None:
        lease = with_lease(bench)
        interval = lease.interval

        def confirms(request: Message) -> JobMasterReply:
            return msgspec.structs.replace(reply(), confirmed=True, lease=3 * FREEZE)

        bench.job_manager.answers[JobMasterHeartbeat] = confirms
        await asyncio.sleep(2 * INTERVAL)
        assert lease.interval == interval, "its own lease is shorter"
        bench.job_manager.answers[JobMasterHeartbeat] = lambda _: msgspec.structs.replace(
            reply(), confirmed=True, lease=FREEZE
        )
        await bench.until(lambda: lease.interval == interval / 2)
        assert lease.may_commit(lease.ask_to_commit())
        bench.job_manager.answers[JobMasterHeartbeat] = RetryLater("no contact")
        bench.job_manager.answers[RegisterJobMaster] = RetryLater("no contact")
        await asyncio.sleep(FREEZE / 2 + INTERVAL / 2)
        assert not lease.may_commit(lease.ask_to_commit())

    run(story)
