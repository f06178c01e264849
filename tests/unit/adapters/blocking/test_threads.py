"""Threads do blocking work, also while the machine gives this process no further ones."""

from __future__ import annotations

import asyncio
import threading
from typing import NoReturn

import pytest

from emberkeep.adapters.blocking.threads import WorkThreads


async def test_work_is_done_although_no_further_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    pool, both = WorkThreads(2, "test"), threading.Barrier(2)
    with monkeypatch.context() as few:
        few.setattr(threading.Thread, "start", refused)
        await asyncio.wait_for(asyncio.gather(*(pool.start(both.wait) for _ in range(2))), 10)
    pool.close()
