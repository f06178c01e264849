"""Notices how the flows of a declarative pipeline change their state. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus


class FlowNotes:
    """What was noted of one job. ``since_ms``: the start of the leader; what happened before was noted by another."""

    def __init__(self, job_id: str, since_ms: int) -> None:
        self._note = partial(Occurrence, job_id=job_id)
        self._since_ms = since_ms
        self._attempt = 0
        self._flows: dict[str, FlowProgress] = {}

    def reported(self, attempt: int, report: JobMasterStatus) -> Iterator[Occurrence]:
        """Yield an entry for each flow whose state has changed since the report before."""
        before = self._flows if attempt == self._attempt else {}
        self._attempt, self._flows = attempt, {flow.name: flow for flow in report.flows}
        for flow in report.flows:
            if flow != before.get(flow.name) and flow.changed_ms >= self._since_ms:
                yield self._note(
                    what=What.FLOW,
                    message=flow.message,
                    attempt=attempt,
                    details={"flow": flow.name, "state": flow.state},
                )
