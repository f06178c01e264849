"""Questions and orders about upgrades of jobs."""

from __future__ import annotations

from emberkeep.base.errors import Unavailable
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.gateway.job_calls import JobCalls
from emberkeep.jobmanager.jobs.admission import check_graph
from emberkeep.jobmanager.views.upgrades import UpgradeView, UpgradeWish


class UpgradeCalls(JobCalls):
    """UpgradeGateway: the new code is checked like a submitted job."""

    async def upgrade(self, job_id: JobId, wish: UpgradeWish) -> UpgradeView:
        leader = self._confirmed_leader()
        if problem := self._surroundings.storage.problem:
            raise Unavailable(problem, hint="no upgrade is begun until then; running jobs continue")
        check_graph(wish.new)
        await self._check_size(leader, wish.new)
        return await leader.dispatcher.upgrades.begin(job_id, wish)

    async def upgrade_of(self, job_id: JobId) -> UpgradeView:
        return await self._leader.dispatcher.upgrades.view(job_id)

    async def cancel_upgrade(self, job_id: JobId) -> UpgradeView:
        return await self._confirmed_leader().dispatcher.upgrades.cancel(job_id)
