"""Spark UIs of drivers as the JobManager reads them, by RPC."""

from __future__ import annotations

from emberkeep.base.errors import Absent, RetryLater, UnknownOutcome
from emberkeep.base.ids import JobId
from emberkeep.protocol.messages import ReadSparkUi, SparkUiRead
from emberkeep.protocol.transport import RpcClient

_SECONDS = 30.0  # for one page; the driver itself waits 20 s for Spark


class RpcSparkUis:
    """Implements ``rest.ports.SparkUis``."""

    def __init__(self, rpc: RpcClient) -> None:
        self._rpc = rpc

    async def read(self, job_master: str, job_id: JobId, attempt: int, path: str, base: str = "") -> SparkUiRead:
        """See ``SparkUis``."""
        if not job_master:
            raise Absent(f"attempt {attempt} has ended, and its Spark UI with it", hint="its logs and events are kept")
        request = ReadSparkUi(job_id=job_id, attempt=attempt, path=path, base=base)
        try:
            return await self._rpc.call(job_master, request, SparkUiRead, timeout=_SECONDS)
        except (RetryLater, UnknownOutcome) as error:
            raise RetryLater(f"the job's Spark UI cannot be read now: {error.message}", hint=error.hint) from None
