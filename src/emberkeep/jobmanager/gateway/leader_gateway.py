"""What the edges can ask of the leader: REST, the web page, metrics and the storage keeper.

It has one method for each question of JobManagerGateway, and passes the question to the actor that can answer it.
Requests that change something are refused while the leadership cannot be confirmed.
"""

from __future__ import annotations

from emberkeep.base.errors import Conflict, RetryLater
from emberkeep.jobmanager.gateway.blocklist_calls import BlocklistCalls
from emberkeep.jobmanager.gateway.upgrade_calls import UpgradeCalls


class LeaderGateway(UpgradeCalls, BlocklistCalls):
    """JobManagerGateway of the leader in ``seat``. Raises RetryLater if there is no leader."""

    def epoch(self) -> int:
        return self._seat.epoch

    def started_ms(self) -> int:
        return self._seat.started_ms

    def address(self) -> str:
        return self._surroundings.address

    async def is_confirmed(self) -> bool:
        try:
            return await self._leader.term.authority.confirmed()
        except Conflict as error:
            raise RetryLater("this JobManager no longer leads", hint="try again: another one does") from error
