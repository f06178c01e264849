"""Spark UIs as the JobManager reads them: of drivers by RPC, and after an attempt's end from its event log."""

from __future__ import annotations

from emberkeep.base.errors import RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.daemons.jobmanager.spark_history import SparkHistory
from emberkeep.protocol.messages.job_masters import ReadSparkUi, SparkUiRead
from emberkeep.protocol.transport import RpcClient

_SECONDS = 30.0  # for one page; the driver itself waits 20 s for Spark


class AttemptSparkUis:
    """Implements ``rest.ports.SparkUis``."""

    def __init__(self, rpc: RpcClient, history: SparkHistory) -> None:
        self._rpc = rpc
        self._history = history

    async def read(
        self, job_master: str, job_id: JobId, attempt: int, path: str, base: str = "", *, in_pieces: bool = False
    ) -> SparkUiRead:
        """See ``SparkUis``."""
        if not job_master:
            return await self._history.read(job_id, attempt, path, base, in_pieces=in_pieces)
        request = ReadSparkUi(job_id=job_id, attempt=attempt, path=path, base=base, in_pieces=in_pieces)
        return await self._ask(job_master, request)

    async def following(self, job_master: str, job_id: JobId, attempt: int, more: str) -> SparkUiRead:
        """See ``SparkUis``."""
        if not job_master:
            return await self._history.following(job_id, attempt, more)
        return await self._ask(job_master, ReadSparkUi(job_id=job_id, attempt=attempt, path="/", more=more))

    async def abandon(self, job_master: str, job_id: JobId, attempt: int, more: str) -> None:
        """See ``SparkUis``."""
        if not job_master:
            await self._history.abandon(job_id, attempt, more)
        else:
            request = ReadSparkUi(job_id=job_id, attempt=attempt, path="/", more=more, abandons=True)
            await self._ask(job_master, request)

    async def _ask(self, job_master: str, request: ReadSparkUi) -> SparkUiRead:
        try:
            return await self._rpc.call(job_master, request, SparkUiRead, timeout=_SECONDS)
        except (RetryLater, UnknownOutcome) as error:
            raise RetryLater(f"the job's Spark UI cannot be read now: {error.message}", hint=error.hint) from None
