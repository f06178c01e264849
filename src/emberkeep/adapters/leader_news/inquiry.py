"""Asks other processes for the leader, for a process without a ZooKeeper session or cut off from ZooKeeper."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

import structlog

from emberkeep.base.errors import EmberkeepError
from emberkeep.base.identity import AttemptScope
from emberkeep.leadership.model import LeaderAddress, LeaderNews
from emberkeep.leadership.ports import LeaderLocator
from emberkeep.protocol.messages.leaders import AskLeader, LeaderTold
from emberkeep.protocol.messages.root import Message
from emberkeep.protocol.transport import RpcClient, RpcService

PAUSE = 1.0  # minimum seconds between two rounds of questions
UNINFORMED_INTERVAL = 5.0  # seconds between two rounds while no other source reports a new leader
ANSWER_SECONDS = 2.0
MOST_ASKED = 32  # in one round

log = structlog.get_logger(__name__)


class LeaderInquiry:
    """Asks the known JobManagers, and ``others``, for the leader and passes their replies to ``known``.

    ``others`` returns JobMasters: a map from the address of each to its attempt.

    It asks when the leader is in doubt, and at an interval while ``is_informed`` is false: then no other source reports
    a new leader, and an old leader that is cut off from ZooKeeper still replies, without knowing of its successor.
    """

    def __init__(
        self,
        known: LeaderLocator,
        rpc: RpcClient,
        *,
        others: Callable[[], Mapping[str, AttemptScope]],
        is_informed: Callable[[], bool],
    ) -> None:
        self._known = known
        self._rpc = rpc
        self._others = others
        self._is_informed = is_informed
        self._doubts = asyncio.Event()

    def doubt(self) -> None:
        """Record that the supposed leader has not replied."""
        self._doubts.set()

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(UNINFORMED_INTERVAL):
                    await self._doubts.wait()
            if not self._doubts.is_set() and self._is_informed():
                continue
            self._doubts.clear()
            questions = {
                **{address: AskLeader() for address in self._known.news().job_managers},
                **{address: AskLeader(job_id=of.job_id, attempt=of.attempt) for address, of in self._others().items()},
            }
            await asyncio.gather(*(self._ask(*question) for question in list(questions.items())[:MOST_ASKED]))
            await asyncio.sleep(PAUSE)

    async def _ask(self, address: str, question: AskLeader) -> None:
        try:
            told = await self._rpc.call(address, question, LeaderTold, timeout=ANSWER_SECONDS)
        except EmberkeepError as error:
            log.debug("a process did not answer which JobManager leads", asked=address, reason=str(error))
            return
        self._known.hear(_news(told))


class TellsLeader:
    """RpcService that answers AskLeader from ``known``; ``service`` answers all other requests."""

    def __init__(self, known: LeaderLocator, service: RpcService) -> None:
        self._known = known
        self._service = service

    async def serve(self, request: Message) -> Message:
        """See RpcService."""
        if not isinstance(request, AskLeader):
            return await self._service.serve(request)
        news = self._known.news()
        if news.leader is None:
            return LeaderTold(job_managers=news.job_managers)
        return LeaderTold(epoch=news.leader.epoch, address=news.leader.address, job_managers=news.job_managers)


def _news(told: LeaderTold) -> LeaderNews:
    leader = LeaderAddress(told.epoch, told.address) if told.epoch > 0 and told.address else None
    return LeaderNews(leader, told.job_managers)
