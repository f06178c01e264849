"""Certificates: when they end, and whether they prove the names at which others call."""

from __future__ import annotations

from typing import Final

import msgspec

from emberkeep.diagnosis.model import Finding, Severity

CHECK: Final = "certificate"
SOON_MS: Final = 14 * 86_400_000
_DAY_MS: Final = 86_400_000
_RENEW = (
    "running daemons renew what the cluster's own CA has issued; renew a certificate of another CA where it was issued"
)


class CertificateFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate in a file, or one that a server has shown.

    ``reached``: the names and addresses at which others call. ``trusted``: False if the cluster's CAs do not prove it,
    with the ``reason``. ``problem``: why it cannot be read; "" if it can. Times in Unix ms.
    """

    where: str
    begins_ms: int = 0
    ends_ms: int = 0
    names: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    trusted: bool = True
    reason: str = ""
    problem: str = ""


def certificate_findings(facts: CertificateFacts, now_ms: int) -> list[Finding]:
    """Return everything that is wrong with a certificate, or one finding that nothing is."""
    if facts.problem:
        return [_finding(facts, Severity.ERROR, facts.problem, "check security.tls.certificate, .key and .ca")]
    found = []
    days = (facts.ends_ms - now_ms) // _DAY_MS
    if now_ms >= facts.ends_ms:
        found.append(_finding(facts, Severity.ERROR, f"ended {max(0, -days)} days ago", _RENEW))
    elif facts.ends_ms - now_ms < SOON_MS:
        found.append(_finding(facts, Severity.WARNING, f"ends in {days} days", _RENEW))
    if now_ms < facts.begins_ms:
        found.append(
            _finding(facts, Severity.ERROR, "is not valid yet", "check the clocks of this machine and of the issuer")
        )
    unproven = [name for name in facts.reached if not any(covers(proven, name) for proven in facts.names)]
    if unproven:
        what = f"does not prove {', '.join(unproven)}, only {', '.join(facts.names) or 'no name'}"
        fix = "issue one with that name (`emberkeep security init --host NAME`), or call the server by a proven one"
        found.append(_finding(facts, Severity.ERROR, what, fix))
    if not facts.trusted:
        fix = "use the same CA everywhere: security.tls.ca, or `tls/ca.pem` of the cluster's first machine"
        found.append(_finding(facts, Severity.ERROR, f"is not proven by the cluster's CA: {facts.reason}", fix))
    what = f"valid for {days} days, proves {', '.join(facts.names)}"
    return found or [_finding(facts, Severity.OK, what, "")]


def covers(proven: str, name: str) -> bool:
    """True if a certificate for ``proven``, which may begin with "*.", proves ``name``."""
    proven, name = proven.lower(), name.lower().strip("[]")
    if proven.startswith("*."):
        first, _, rest = name.partition(".")
        return bool(first) and rest == proven[2:]
    return proven == name


def _finding(facts: CertificateFacts, severity: Severity, what: str, fix: str) -> Finding:
    return Finding(check=CHECK, where=facts.where, severity=severity, what=what, fix=fix)
