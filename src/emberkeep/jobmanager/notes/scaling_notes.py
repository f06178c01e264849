"""Notices how dynamic allocation or autoscaling changes the number of a job's executors. Pure.

Spark may change the number several times a second, and a job may do that for days. So what happens within a minute
becomes one entry, and a short lack of executors none. Autoscaling pauses after each change: each is an entry, with its
reason. Executors that are lost are no change of the number that is wanted: each loss is an entry at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from emberkeep.chronicle.occurrence import Occurrence, What
from emberkeep.jobmanager.notes.executor_notes import executors_changed, registered
from emberkeep.jobs.model import ExceptionEntry
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus, Scaling

PAUSE_MS: Final = 60_000  # between two entries about the number of executors
LACK_MS: Final = 30_000  # for which a job that wants executors must have none


class ScalingNotes:
    """What was noted of one job. ``recovered``: the attempt that an earlier leader has begun; 0 if there is none."""

    def __init__(self, job_id: str, recovered: int) -> None:
        self._job_id = job_id
        self._note = partial(Occurrence, job_id=job_id)
        self._recovered = recovered
        self._attempt = 0
        self._executors: dict[str, str] = {}  # that have registered and not ended, and where they run
        self._exceptions: tuple[ExceptionEntry, ...] = ()
        self._noted = 0  # executors in the newest entry
        self._noted_ms = -PAUSE_MS
        self._fewest = self._most = 0  # since then
        self._lacks_since: int | None = None
        self._lack_noted = False
        self._decided_ms: int | None = None  # when autoscaling has decided last
        self._wanted = 0  # before that

    def reported(self, attempt: int, report: JobMasterStatus, scaling: Scaling, now_ms: int) -> Iterator[Occurrence]:
        """Yield what a JobMaster's report adds to the chronicle."""
        usable = registered(report)
        if attempt != self._attempt:
            self._begin(attempt, report, len(usable))
        before = self._executors
        # One that is lost may be unknown to Spark before its task manager reports its end.
        kept = {each.executor_id for each in report.executors}
        self._executors = {name: place for name, place in before.items() if name in kept} | usable
        present = len(self._executors)
        yield from self._losses(before, report, scaling)
        self._fewest, self._most = min(self._fewest, present), max(self._most, present)
        if scaling.autoscaled:
            yield from self._decision(scaling)
        moved = not scaling.autoscaled and (self._fewest, self._most) != (self._noted, self._noted)
        if moved and now_ms - self._noted_ms >= PAUSE_MS:
            yield self._scaled(present, scaling)
            self._noted, self._noted_ms = present, now_ms
            self._fewest = self._most = present
        yield from self._lack(report, scaling, len(usable), now_ms)

    def _begin(self, attempt: int, report: JobMasterStatus, present: int) -> None:
        """Begin with an attempt: a new one has no executor yet; one that was found has those that it has."""
        is_found = attempt == self._recovered
        self._attempt = attempt
        self._executors = {}
        self._exceptions = report.exceptions if is_found else ()
        self._noted = self._fewest = self._most = present if is_found else 0
        self._noted_ms = -PAUSE_MS
        self._lacks_since, self._lack_noted = None, False
        self._decided_ms = None

    def _losses(self, before: dict[str, str], report: JobMasterStatus, scaling: Scaling) -> Iterator[Occurrence]:
        """Note executors that were lost. They are no part of the next change."""
        new = {each.executor for each in report.exceptions if each not in self._exceptions}
        self._exceptions = report.exceptions
        lost = {name: place for name, place in before.items() if name in new and name not in self._executors}
        if not lost:
            return
        self._noted, self._fewest, self._most = (
            max(0, number - len(lost)) for number in (self._noted, self._fewest, self._most)
        )
        yield executors_changed(
            self._job_id,
            What.EXECUTORS_ENDED,
            lost,
            attempt=self._attempt,
            present=len(self._executors),
            wanted=scaling.wanted,
        )

    def _decision(self, scaling: Scaling) -> Iterator[Occurrence]:
        """Note a decision of autoscaling; not the number with which an attempt begins, or is found."""
        before, wanted = self._wanted, scaling.wanted
        is_new = self._decided_ms is not None and scaling.changed_ms != self._decided_ms
        self._decided_ms, self._wanted = scaling.changed_ms, wanted
        if is_new and wanted != before:
            yield self._note(
                what=What.EXECUTORS_SCALED,
                message=f"autoscaling: {before} → {wanted} executors wanted: {scaling.reason}",
                attempt=self._attempt,
                details={"before": str(before), "wanted": str(wanted), "reason": scaling.reason},
            )

    def _scaled(self, present: int, scaling: Scaling) -> Occurrence:
        meanwhile = ""
        if self._fewest < min(present, self._noted) or self._most > max(present, self._noted):
            meanwhile = f", and between {self._fewest} and {self._most} in the meantime"
        return self._note(
            what=What.EXECUTORS_SCALED,
            message=f"dynamic allocation: {self._noted} → {present} executors{meanwhile}; Spark wants {scaling.wanted}",
            attempt=self._attempt,
            details={
                "before": str(self._noted),
                "present": str(present),
                "wanted": str(scaling.wanted),
                "fewest": str(self._fewest),
                "most": str(self._most),
            },
        )

    def _lack(self, report: JobMasterStatus, scaling: Scaling, present: int, now_ms: int) -> Iterator[Occurrence]:
        if present or not scaling.wanted:
            if self._lack_noted and present:
                yield self._note(
                    what=What.SLOTS_COMPLETE,
                    message=f"the attempt has {present} of {scaling.wanted} executors, and continues",
                    attempt=self._attempt,
                )
                self._lack_noted = False
            self._lacks_since = None
            return
        if self._lacks_since is None:
            self._lacks_since = now_ms
        if now_ms - self._lacks_since >= LACK_MS and not self._lack_noted:
            self._lack_noted = True
            missing = report.waiting or f"none of {scaling.wanted} executors has registered"
            yield self._note(what=What.SLOTS_MISSING, message=f"the attempt waits: {missing}", attempt=self._attempt)
