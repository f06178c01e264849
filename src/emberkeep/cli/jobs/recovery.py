"""Print the recovery trace of a job's newest attempt: what its start waited for, and for how long."""

from __future__ import annotations

from emberkeep.cli.messages import print_line
from emberkeep.cli.tables import print_table
from emberkeep.jobs.traces.recovery_trace import BEGINNINGS, RecoveryCause
from emberkeep.protocol.rest_jobs import AttemptInfo, JobDetailsInfo
from emberkeep.protocol.rest_recovery import RecoveryInfo

_BEGINNINGS = frozenset(milestone.value for milestone in BEGINNINGS)


def print_recovery(job: JobDetailsInfo) -> None:
    """Print the trace of the newest attempt; nothing if it is unknown."""
    attempts = job.emberkeep.attempts
    recovery = attempts[-1].recovery if attempts else None
    if recovery is None or not recovery.milestones:
        return
    print_line(f"\n{_headline(attempts[-1], recovery)}")
    rows, before = [], 0
    for reached in recovery.milestones:
        rows.append((reached.milestone, _seconds(reached.after), _seconds(reached.after - before)))
        before = reached.after
    print_table(("MILESTONE", "AT", "TOOK"), rows)
    if recovery.milestones[0].milestone not in _BEGINNINGS:
        print_line("  What happened before was seen by an earlier leader only")


def _headline(attempt: AttemptInfo, recovery: RecoveryInfo) -> str:
    known = [f"Start of attempt {attempt.attempt}"]
    if recovery.cause is not None and recovery.cause is not RecoveryCause.SUBMISSION:
        known.append(f"the previous one: {recovery.cause.value}")
    if recovery.delay:
        known.append(f"restart delay {recovery.delay / 1000:g} s")
    if recovery.start is not None:
        why = f" ({recovery.why_cold})" if recovery.why_cold else ""
        known.append(f"driver started {recovery.start.value}{why}")
    return ", ".join(known)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s"
