"""Settings that must be alike where a JobManager runs, because the next leader goes by its own."""

from __future__ import annotations

from typing import Final

import msgspec

from emberkeep.diagnosis.model import Finding, Severity

CHECK: Final = "settings"


class LeaseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a driver may be silent, in seconds: by this machine's configuration, and by that of the leader.

    ``option``: the key of the setting. ``where``: the leader.
    """

    option: str
    where: str
    here: float
    leader: float


def lease_findings(facts: LeaseFacts) -> list[Finding]:
    """Return whether a takeover would change the lease."""
    if facts.here == facts.leader:
        what = f"{facts.option} is {facts.leader:g} s, here as there"
        return [Finding(check=CHECK, where=facts.where, severity=Severity.OK, what=what)]
    return [
        Finding(
            check=CHECK,
            where=facts.where,
            severity=Severity.WARNING,
            what=f"its {facts.option} is {facts.leader:g} s, and {facts.here:g} s on this machine",
            fix=f"if the JobManagers get it by -D or --config, give `emberkeep doctor` the same, such as "
            f"-D {facts.option}={facts.leader:g}s; else set it to one value on all JobManagers: after a takeover that "
            "shortens it, a driver that is cut off still goes by the longer one",
        )
    ]
