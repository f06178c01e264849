"""One upgrade as a pure state machine: facts about its jobs go in, the next step comes out.

These rules hold at every step:

- At most one of the three jobs runs. The new job is submitted only when the old one is over and its savepoint is
  recorded; the old code is submitted again only when the new job is over, or was never accepted.
- A phase is durable before anything is done in it, and each of its actions may be repeated. Whichever process fails,
  the next leader continues the upgrade from its record.
- The savepoint never changes once it is known.
- The upgrade ends: the stop has a deadline, the watch has one, and a cancelled job ends.
"""

from __future__ import annotations

import itertools

import msgspec

from emberkeep.base.errors import Conflict
from emberkeep.base.inert_text import cut_short
from emberkeep.jobs.model import JobGraph, JobStatus
from emberkeep.jobs.upgrades.model import (
    AskStop,
    CancelJob,
    Effect,
    Facts,
    QueryFacts,
    StopFacts,
    StopState,
    SubmitJob,
    Upgrade,
    UpgradePhase,
    VersionFacts,
    WriteUpgrade,
)

BASES_KEPT = 1000  # checkpoint locations whose batches are counted: a script may begin query after query
BASES_BYTES = 128 * 1024  # of these locations: with the graphs, the record has to fit into a node of ZooKeeper
MOST_REASON = 2000  # characters: the cause of a failed job may have megabytes
_LOOKS = 60.0  # seconds for which a leader looks at least before it decides that the new job is not good in time
UNREADABLE = (
    "the job was stopped, and its savepoint is complete; but the record of where it is could not be read: look in the "
    "directory of savepoints, and start the new code from it"
)
MAY_CANCEL = frozenset({UpgradePhase.STOPPING, UpgradePhase.STARTING, UpgradePhase.WATCHING})


class UpgradeMachine:
    """One upgrade. ``upgrade``: its record, as it is stored."""

    def __init__(self, upgrade: Upgrade) -> None:
        self.upgrade = upgrade
        self._writing: Upgrade | None = None
        self._is_submitting = False
        self._is_cancelling = False
        self._refusal = ""  # why the old job does not take the stop
        self._rejection = ""  # why the job that the phase submits cannot be accepted
        self._canceled_by = ""
        self._watched_until: float | None = None  # by this leader's monotonic clock

    # --- what happens -------------------------------------------------------------------------------------------------

    def looked(self, facts: Facts, *, now: float, ms: int) -> list[Effect]:
        """Return what must be done now. ``now``: seconds of a monotonic clock. ``ms``: Unix milliseconds."""
        upgrade = self.upgrade
        if self._watched_until is None and upgrade.phase is UpgradePhase.WATCHING:
            self._watched_until = now + self._watch_seconds(ms)
        if self._writing is not None or self._is_submitting or upgrade.phase.is_final:
            return []
        if self._canceled_by and not upgrade.canceled_by and upgrade.phase in MAY_CANCEL:
            return self._write(canceled_by=self._canceled_by)
        match upgrade.phase:
            case UpgradePhase.STOPPING:
                return self._stop(facts, ms)
            case UpgradePhase.STARTING:
                return self._start(facts.new, ms)
            case UpgradePhase.WATCHING:
                return self._watch(facts.new, now, ms)
            case UpgradePhase.CANCELLING:
                return self._cancel_new(facts.new, ms)
            case _:
                return self._return(facts.back, ms)

    def written(self) -> None:
        """Note that the record is durable."""
        if self._writing is not None:
            self.upgrade, self._writing = self._writing, None

    def stop_refused(self, reason: str) -> None:
        """Note that the old job will never take the request to stop."""
        self._refusal = reason

    def submitted(self, rejection: str = "") -> None:
        """Note that a submission has ended. ``rejection``: why the job can never be accepted; "": accepted, or later.

        Whether the job was accepted is a fact of the next look.
        """
        self._is_submitting, self._rejection = False, rejection

    def cancel_recorded(self) -> None:
        """Note that the cancellation of the new job was recorded, or must be tried again."""
        self._is_cancelling = False

    def cancel(self, by: str) -> None:
        """End the upgrade: go back to the old code. Has no effect if that is recorded already.

        Raises Conflict if the upgrade has ended or goes back for another reason. The phase that is being recorded may
        still come first: then ``canceled_by`` stays empty.
        """
        if self.upgrade.canceled_by:
            return
        if self.upgrade.phase not in MAY_CANCEL:
            raise too_late(self.upgrade)
        self._canceled_by = self._canceled_by or by or "the cluster's own token"

    # --- phases -------------------------------------------------------------------------------------------------------

    def _stop(self, facts: Facts, ms: int) -> list[Effect]:
        stop, old = facts.stop, facts.old
        if not old.is_known and stop.state is not StopState.MADE:
            return self._enter(UpgradePhase.FAILED, ms, "the job is not known any longer")
        if old.status is JobStatus.CANCELED:
            reason = "the job was cancelled; no version of it was started"
            return self._enter(UpgradePhase.FAILED, ms, reason, savepoint=stop.savepoint)
        if stop.state in (StopState.MADE, StopState.UNREADABLE):
            return self._stopped(stop, old, ms)
        if old.has_ended:
            return self._enter(UpgradePhase.FAILED, ms, f"the job has ended before it was stopped: {_state(old)}")
        if old.status in (JobStatus.CANCELLING, JobStatus.FAILING):
            return []  # it is not known yet whether the job continues
        if stop.state is StopState.FAILED:
            return self._enter(UpgradePhase.UNCHANGED, ms, f"the job was not stopped: {stop.failure}")
        if stop.state is StopState.OPEN:
            return []
        if self._refusal:
            return self._enter(UpgradePhase.UNCHANGED, ms, f"the job was not stopped: {self._refusal}")
        if self.upgrade.canceled_by:
            return self._enter(UpgradePhase.UNCHANGED, ms, self._canceled())
        return [AskStop()]

    def _stopped(self, stop: StopFacts, old: VersionFacts, ms: int) -> list[Effect]:
        """Continue once the old job is over. While it ends, a record of its savepoint may become readable."""
        if old.is_known and not old.is_over:
            return []
        if stop.state is StopState.UNREADABLE:
            return self._enter(UpgradePhase.FAILED, ms, UNREADABLE)
        if self.upgrade.canceled_by:
            return self._go_back(ms, self._canceled(), savepoint=stop.savepoint)
        return self._enter(UpgradePhase.STARTING, ms, savepoint=stop.savepoint)

    def _start(self, new: VersionFacts, ms: int) -> list[Effect]:
        if new.is_known:
            return [] if new.status is None else self._enter(UpgradePhase.WATCHING, ms)
        if self._rejection:
            return self._go_back(ms, f"the new job was not accepted: {self._rejection}")
        if self.upgrade.canceled_by:
            return self._go_back(ms, self._canceled())
        return self._submit(self.upgrade.new)

    def _watch(self, new: VersionFacts, now: float, ms: int) -> list[Effect]:
        upgrade = self.upgrade
        if not new.is_known:
            return self._go_back(ms, "the new job is not known any longer")
        if new.status is JobStatus.CANCELED:
            reason = "the new job was cancelled; no version of the job was started again"
            return self._enter(UpgradePhase.FAILED, ms, reason)
        if new.status is JobStatus.FINISHED:
            return self._enter(UpgradePhase.DONE, ms)
        if new.status is JobStatus.FAILED:
            return self._go_back(ms, f"the new job failed: {new.cause}") if new.is_over else []
        if new.status is JobStatus.CANCELLING:
            return []  # a person cancels it: this machine does so only in the phase CANCELLING
        if upgrade.canceled_by:
            return self._enter(UpgradePhase.CANCELLING, ms, self._canceled())
        if new.is_stopping:
            return []  # a person stops it: it becomes FINISHED, or the stop fails and the watch continues
        if restarts(new) > upgrade.restarts:
            cause = f": {new.cause}" if new.cause else ""
            return self._enter(
                UpgradePhase.CANCELLING, ms, f"the driver of the new job was restarted {restarts(new)} times{cause}"
            )
        return self._count(new, now, ms)

    def _count(self, new: VersionFacts, now: float, ms: int) -> list[Effect]:
        """Return what follows from the batches that the new job has committed."""
        upgrade = self.upgrade
        bases = _bases(upgrade, new.queries)
        if bases != upgrade.bases:
            return self._write(bases=bases)
        is_running = new.status is JobStatus.RUNNING and bool(new.queries)
        missing = [each for each in new.queries if good_batches(upgrade, each) < upgrade.batches]
        if is_running and not missing:
            return self._enter(UpgradePhase.DONE, ms)
        if self._watched_until is None or now < self._watched_until:
            return []
        if is_running and all(each.waits for each in missing):  # there is nothing to read
            return self._enter(UpgradePhase.DONE, ms)
        return self._enter(
            UpgradePhase.CANCELLING, ms, f"the new job was not good in time: {self._lacks(new, missing)}"
        )

    def _watch_seconds(self, ms: int) -> float:
        """Return how long this leader watches. One that has just taken over looks for a while before it decides.

        Only what an earlier leader has watched is counted by the wall clock, which may have been set in the meantime.
        """
        upgrade = self.upgrade
        within = upgrade.within_ms / 1000
        watched = max(0, ms - upgrade.phase_ms) / 1000
        return max(within - watched, min(within, _LOOKS))

    def _lacks(self, new: VersionFacts, missing: list[QueryFacts]) -> str:
        if new.status is not JobStatus.RUNNING:
            return _state(new)
        if not new.queries:
            return "it runs no streaming query"
        worst = min(missing, key=lambda each: good_batches(self.upgrade, each))
        done = good_batches(self.upgrade, worst)
        return f"query {worst.name} has committed {done} of {self.upgrade.batches} batches"

    def _cancel_new(self, new: VersionFacts, ms: int) -> list[Effect]:
        if not new.is_known or new.is_over:
            return self._go_back(ms, self.upgrade.reason)
        if new.status is None or new.has_ended or new.status is JobStatus.CANCELLING or self._is_cancelling:
            return []
        self._is_cancelling = True
        return [CancelJob(self.upgrade.new_id)]

    def _return(self, back: VersionFacts, ms: int) -> list[Effect]:
        if back.is_known:
            return [] if back.status is None else self._enter(UpgradePhase.RETURNED, ms, self.upgrade.reason)
        if self._rejection:
            return self._enter(
                UpgradePhase.FAILED,
                ms,
                f"{self.upgrade.reason}; then the old code was not accepted: {self._rejection}",
            )
        return self._submit(self.upgrade.back)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _go_back(self, ms: int, reason: str, *, savepoint: str = "") -> list[Effect]:
        return self._enter(UpgradePhase.RETURNING, ms, reason, savepoint=savepoint)

    def _enter(self, phase: UpgradePhase, ms: int, reason: str = "", *, savepoint: str = "") -> list[Effect]:
        self._rejection = ""
        upgrade = msgspec.structs.replace(
            self.upgrade,
            phase=phase,
            phase_ms=ms,
            reason=cut_short(reason, MOST_REASON),
            savepoint=self.upgrade.savepoint or savepoint,
        )
        if phase.is_final:
            upgrade = msgspec.structs.replace(upgrade, ended_ms=ms, new=None, back=None)
        self._writing = upgrade
        return [WriteUpgrade(upgrade)]

    def _write(self, **changes: object) -> list[Effect]:
        self._writing = msgspec.structs.replace(self.upgrade, **changes)
        return [WriteUpgrade(self._writing)]

    def _submit(self, graph: JobGraph | None) -> list[Effect]:
        assert graph is not None  # noqa: S101 - only an ended upgrade has none
        self._is_submitting = True
        # The same graph each time, whoever leads.
        return [
            SubmitJob(
                msgspec.structs.replace(graph, savepoint=self.upgrade.savepoint, submitted_ms=self.upgrade.phase_ms)
            )
        ]

    def _canceled(self) -> str:
        return f"{self.upgrade.canceled_by} has cancelled the upgrade"

    def check_invariants(self) -> None:
        """Raise AssertionError if the state contradicts itself. For tests and the simulator."""
        upgrade = self.upgrade
        needs = upgrade.phase not in (UpgradePhase.STOPPING, UpgradePhase.UNCHANGED, UpgradePhase.FAILED)
        assert upgrade.savepoint or not needs  # noqa: S101
        assert upgrade.phase.is_final == (upgrade.new is None)  # noqa: S101
        assert upgrade.phase.is_final == bool(upgrade.ended_ms)  # noqa: S101


def too_late(upgrade: Upgrade) -> Conflict:
    """Return why the upgrade cannot be cancelled: it has a phase outside of MAY_CANCEL, and nobody has cancelled it."""
    return Conflict(
        f"it was too late: the upgrade is {upgrade.phase.value}",
        hint=f"`emberkeep upgrade {upgrade.job_id[:8]}` tells more",
    )


def restarts(job: VersionFacts) -> int:
    """Return how often the job's driver was restarted, by the number of its attempt."""
    return max(0, job.attempt - 1)


def good_batches(upgrade: Upgrade, query: QueryFacts) -> int:
    """Return how many batches of the new job's query are known to be committed."""
    base = upgrade.bases.get(query.location)
    return 0 if base is None else max(0, query.batch - base)


def _bases(upgrade: Upgrade, queries: tuple[QueryFacts, ...]) -> dict[str, int]:
    """Return the recorded bases with those of the queries that run now; a running query's is never left out first."""
    running = {each.location: upgrade.bases.get(each.location, _base(each)) for each in queries if each.batch >= 0}
    known = itertools.islice({**running, **upgrade.bases}.items(), BASES_KEPT)
    kept, size = {}, 0
    for location, base in known:
        size += len(location.encode())
        if size > BASES_BYTES:
            break
        kept[location] = base
    return kept


def _base(query: QueryFacts) -> int:
    # The newest batch of a query that has run none yet is that of the savepoint.
    return query.batch - 1 if query.has_rows else query.batch


def _state(job: VersionFacts) -> str:
    status = job.status.value if job.status is not None else "unknown"
    return f"it is {status}{': ' + job.cause if job.cause else ''}"
