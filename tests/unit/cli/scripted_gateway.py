"""A JobManager behind its real API, whose savepoint requests go as a test scripts them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.model import Procedure, ProcedureRequest
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_id, job_view
from tests.unit.rest.server import TOKEN, running_site


class Scripted(FakeGateway):
    """``steps``: what each look at a request shows, besides what was asked; the last one stays.

    ``periodic``: a periodic savepoint is being made, until a client that was refused for that looks at the job.
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []
        self.ends_as: JobStatus | None = None
        self.looked = threading.Event()
        self.periodic = False
        self._refused = False

    async def request_procedure(self, job_id: JobId, request: ProcedureRequest) -> ProcedureRequest:
        if self.periodic:
            self._refused = True
            raise RetryLater("a periodic savepoint is being made")
        return await super().request_procedure(job_id, request)

    async def job(self, job_id: JobId) -> JobView:
        view = await super().job(job_id)
        if not self.periodic or not self._refused:
            return view
        self.periodic = False
        request = ProcedureRequest(trigger_id="a" * 32, procedure=Procedure.SAVEPOINT, periodic=True)
        made = ProcedureView(job_id=job_id, trigger_id=request.trigger_id, request=request)
        return msgspec.structs.replace(view, procedure=made)

    async def procedure(self, job_id: JobId, trigger_id: str) -> ProcedureView:
        view = await super().procedure(job_id, trigger_id)
        self.looked.set()
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if "error" in step:
            raise step["error"]
        if step.get("is_over") and self.ends_as is not None:
            self.change(job_id, status=self.ends_as)
        view = msgspec.structs.replace(view, **step)
        if view.is_over:
            self.procedures[job_id, trigger_id] = view
            if view.savepoint:
                made = SavepointPointer(
                    path=view.savepoint, manifest_sha256="", created_ms=NOW_MS, trigger_id=trigger_id
                )
                self.change(job_id, procedure=None, pointers=JobPointers(savepoints=(made,)))
        return view


@contextmanager
def serving_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    state = tmp_path / "state"
    state.mkdir()
    (state / "token").write_text(TOKEN)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(state))
    gateway = Scripted()
    gateway.add(job_view(job_id(1), "flights"), job_view(job_id(2), "etl", JobStatus.FINISHED))
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        async with running_site(tmp_path, gateway) as site:
            monkeypatch.setenv("EMBERKEEP_SECURITY__ENCRYPTION", "none")
            monkeypatch.setenv("EMBERKEEP_URL", site.base)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="job-manager")
    thread.start()
    try:
        assert ready.wait(120)
        yield gateway
    finally:
        stop.set()
        thread.join(120)
        assert not thread.is_alive()
