"""Clocks: how far they are apart. Certificates, expiring tokens and `--until` depend on them; leases do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from emberkeep.diagnosis.model import Finding, Severity

CHECK: Final = "clock"
WARNING_MS: Final = 5_000
ERROR_MS: Final = 60_000
_FIX = "let a time service set the clock there: chrony or systemd-timesyncd"


class ClockReading(msgspec.Struct, frozen=True):
    """A clock that was read over the network: how far it is ahead of this machine's clock, in ms, at least and at most.

    The two differ by how long the reply took, and by how precise the reply is.
    """

    where: str
    least_ms: int
    most_ms: int

    @property
    def certain_ms(self) -> int:
        """The smallest difference that is possible; negative if that clock is behind."""
        if self.least_ms > 0:
            return self.least_ms
        return min(self.most_ms, 0)


def clock_findings(readings: Sequence[ClockReading]) -> list[Finding]:
    """Return a finding for each clock, or one about this machine's if several differ, all in the same direction."""
    wrong = [reading for reading in readings if abs(reading.certain_ms) >= WARNING_MS]
    alike = len({reading.certain_ms > 0 for reading in wrong}) == 1
    if len(readings) > 1 and len(wrong) == len(readings) and alike:
        nearest = min(wrong, key=lambda reading: abs(reading.certain_ms))
        what = f"this machine's clock is {_apart(-nearest.certain_ms)} those of all {len(readings)} servers"
        return [Finding(check=CHECK, where="this machine", severity=_severity(nearest), what=what, fix=_FIX)]
    return [_finding(reading) for reading in readings]


def _finding(reading: ClockReading) -> Finding:
    severity = _severity(reading)
    if severity is Severity.OK:
        what = "agrees with this machine's clock"
    else:
        what = f"its clock is {_apart(reading.certain_ms)} this machine's"
    return Finding(
        check=CHECK, where=reading.where, severity=severity, what=what, fix="" if severity is Severity.OK else _FIX
    )


def _severity(reading: ClockReading) -> Severity:
    apart = abs(reading.certain_ms)
    return Severity.ERROR if apart >= ERROR_MS else Severity.WARNING if apart >= WARNING_MS else Severity.OK


def _apart(milliseconds: int) -> str:
    return f"at least {abs(milliseconds) / 1000:.0f} s {'ahead of' if milliseconds > 0 else 'behind'}"
