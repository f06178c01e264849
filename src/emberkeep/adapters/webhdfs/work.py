"""The blocking work of a state gateway's requests: in threads, with a share for each checkpoint location of a job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from emberkeep.adapters.blocking.shares import WorkShares
from emberkeep.adapters.blocking.threads import WorkThreads, ended
from emberkeep.adapters.webhdfs.request import WebHdfsRequest
from emberkeep.local_state.model import StatePath

ResultT = TypeVar("ResultT")

_THREADS = 144  # for blocking work; store calls take at most 128, which leaves some for work on this node's disk
_STORE_CALLS, _STORE_CALLS_PER_ROOT = 128, 32  # threads that call durable stores at once; further calls wait
_TRANSFERS, _TRANSFERS_PER_ROOT = 128, 32  # files being received or sent at once; further ones wait
_PATIENCE = 20.0  # seconds to wait for earlier requests to a durable store


class GatewayWork:
    """The threads of one gateway. Belongs to one event loop.

    Stores that hang, and a busy job, block only their own requests: each pair of job and root has its own share, which
    shrinks while others hold theirs. ``Division`` says how many may hang.
    """

    def __init__(self, thread_name: str) -> None:
        self._threads = WorkThreads(_THREADS, thread_name)
        self._store_calls = WorkShares(_STORE_CALLS, _STORE_CALLS_PER_ROOT, _PATIENCE)
        self._transfers = WorkShares(_TRANSFERS, _TRANSFERS_PER_ROOT, _PATIENCE)

    async def at_store(self, request: WebHdfsRequest, path: StatePath, work: Callable[[], ResultT]) -> ResultT:
        """Run ``work``, which may call the durable store, in a thread. Raises RetryLater if earlier calls hang."""
        async with self._store_calls.part((request.caller.job_id, path.root), path.root):
            return await self.in_thread(work)

    def transfer(self, request: WebHdfsRequest, path: StatePath) -> AbstractAsyncContextManager[None]:
        """Return the context in which a file is received or sent. Entering it raises RetryLater if too many are."""
        return self._transfers.part((request.caller.job_id, path.root), path.root)

    async def in_thread(self, work: Callable[[], ResultT]) -> ResultT:
        """Return the result of ``work``. Even if cancelled, returns only once ``work`` has ended."""
        future = self._threads.start(work)
        await ended(future)
        return future.result()

    def close(self) -> None:
        """Cancel all work that has not begun, and begin no more. Idempotent."""
        for future in self._threads.close():
            future.cancel()
