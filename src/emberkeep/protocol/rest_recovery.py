"""REST bodies about the start of an attempt: its recovery trace."""

from __future__ import annotations

from emberkeep.jobs.traces.recovery_trace import RecoveryCause
from emberkeep.protocol.rest import Duration, Kebab, Millis
from emberkeep.slots.model import ProcessStart


class MilestoneInfo(Kebab, frozen=True, kw_only=True):
    """A moment in the start of an attempt. ``after``: since the trace's first milestone.

    ``milestone`` is a name; later releases may have others.
    """

    milestone: str
    after: Duration


class RecoveryInfo(Kebab, frozen=True, kw_only=True):
    """The recovery trace of an attempt: where the time went between a loss (or the submission) and the first result.

    ``began``: time of the first known milestone. ``milestones``: those reached, in order of time. The trace is
    incomplete if ``cause`` is null or the first milestone is none of ``submitted``, ``last-contact`` and ``detected``:
    only an earlier leader saw how it began. ``delay``: added by the restart strategy. ``start``: how the task manager
    got the driver's process; null if that is unknown. ``why-cold``: why it took no standby process.
    """

    cause: RecoveryCause | None
    began: Millis
    delay: Duration
    start: ProcessStart | None
    why_cold: str
    milestones: list[MilestoneInfo]
