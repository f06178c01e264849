"""Addresses: whether the cluster's processes can be reached, or could listen there once they are started."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from emberkeep.diagnosis.model import Finding, Severity


class PortState(StrEnum):
    ANSWERS = "answers"
    FREE = "free"
    TAKEN = "taken"
    NOT_HERE = "not here"
    UNKNOWN_NAME = "unknown name"
    SILENT = "silent"


class PortFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An address that was tried.

    ``owner``: whose it is, with the option that names it. ``reason``: the error in the system's words. ``expected``:
    False if the process may not have been started yet.
    """

    where: str
    owner: str
    state: PortState
    reason: str = ""
    expected: bool = True


_MEANING = {
    PortState.ANSWERS: (Severity.OK, "answers", ""),
    PortState.FREE: (Severity.OK, "is free", ""),
    PortState.TAKEN: (
        Severity.ERROR,
        "is taken by another process",
        "end that process (`ss -ltnp` names it), or choose another port",
    ),
    PortState.NOT_HERE: (
        Severity.ERROR,
        "cannot be bound",
        "choose an address of this machine, or 0.0.0.0 for all; ports below 1024 need a privilege",
    ),
    PortState.UNKNOWN_NAME: (
        Severity.ERROR,
        "is not known to this machine's resolver",
        "correct the name, or add it to DNS or /etc/hosts on every machine",
    ),
    PortState.SILENT: (
        Severity.ERROR,
        "does not answer",
        "check that the process runs, and that a firewall lets this machine connect",
    ),
}


def port_findings(facts: PortFacts) -> list[Finding]:
    """Return the findings about one address."""
    severity, what, fix = _MEANING[facts.state]
    if facts.state is PortState.SILENT and not facts.expected:
        severity, fix = Severity.WARNING, f"nothing to do if it is not started yet; else {fix}"
    reason = f": {facts.reason}" if facts.reason else ""
    return [
        Finding(
            check="port", where=f"{facts.where} ({facts.owner})", severity=severity, what=f"{what}{reason}", fix=fix
        )
    ]
