"""ZooKeeper: whether its servers answer, keep sessions as long as configured, and hold the largest records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from emberkeep.diagnosis.model import Finding, Severity

CHECK: Final = "zookeeper"
# Each JobManager, task manager and command is one connection, and all behind one address share the limit.
FEWEST_CONNECTIONS: Final = 20


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One server of the ensemble. ``problem``: why it gave no session; "" if it did, for ``granted_ms``.

    ``connections``: most connections from one address, its `maxClientCnxns`; 0 for no limit; None if it does not say.
    """

    where: str
    problem: str = ""
    granted_ms: int = 0
    connections: int | None = None


class ZooKeeperFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The ensemble. ``wanted_ms``: the configured session timeout.

    ``record_bytes``: the size of the record that was tried, which is the largest that Emberkeep writes.
    ``record_problem``: why it could not be written and read; "" if it could. None: not tried.
    ``releases``: the version of Emberkeep of each JobManager that is registered, by address; "" if it does not say.
    """

    servers: tuple[ServerFacts, ...]
    wanted_ms: int
    record_bytes: int = 0
    record_problem: str | None = None
    releases: dict[str, str] = {}


def zookeeper_findings(facts: ZooKeeperFacts) -> list[Finding]:
    """Return the findings about each server, and about the ensemble."""
    findings = [_server(each, facts.wanted_ms) for each in facts.servers]
    lost = sum(bool(each.problem) for each in facts.servers)
    if facts.servers and 2 * lost >= len(facts.servers):
        findings.append(
            _ensemble(
                facts.servers,
                Severity.ERROR,
                f"{lost} of {len(facts.servers)} servers do not answer, so there is no majority, and no leader",
                "start the servers, or correct high-availability.zookeeper.quorum",
            )
        )
    elif len(facts.servers) % 2 == 0 and facts.servers:
        findings.append(
            _ensemble(
                facts.servers,
                Severity.WARNING,
                f"{len(facts.servers)} servers survive no more losses than {len(facts.servers) - 1}",
                "use an odd number of servers: 3 or 5",
            )
        )
    if facts.record_problem is not None:
        findings.append(_record(facts, facts.record_problem))
    return findings


def _server(server: ServerFacts, wanted_ms: int) -> Finding:
    if server.problem:
        return Finding(
            check=CHECK,
            where=server.where,
            severity=Severity.WARNING,
            what=f"gives no session: {server.problem}",
            fix="start it, check the network, and high-availability.zookeeper.quorum and its ssl options",
        )
    if server.granted_ms != wanted_ms:
        bound = (
            "minSessionTimeout (2 × tickTime)" if server.granted_ms > wanted_ms else "maxSessionTimeout (20 × tickTime)"
        )
        return Finding(
            check=CHECK,
            where=server.where,
            severity=Severity.WARNING,
            what=f"keeps sessions for {server.granted_ms / 1000:g} s, not for the {wanted_ms / 1000:g} s of "
            "high-availability.zookeeper.client.session-timeout",
            fix=f"change {bound} of the server, or the option: a takeover takes as long as the session lasts",
        )
    if server.connections is not None and 0 < server.connections < FEWEST_CONNECTIONS:
        return Finding(
            check=CHECK,
            where=server.where,
            severity=Severity.WARNING,
            what=f"takes {server.connections} connections from one address (maxClientCnxns); each JobManager, task "
            "manager and command there needs one",
            fix="raise maxClientCnxns of the server: 60 is its default",
        )
    what = f"answers, and keeps sessions for {server.granted_ms / 1000:g} s"
    if server.connections is not None:
        what += f"; connections from one address: {server.connections or 'any number'}"
    return Finding(check=CHECK, where=server.where, severity=Severity.OK, what=what)


def _record(facts: ZooKeeperFacts, problem: str) -> Finding:
    size = f"{facts.record_bytes // 1024} KiB"
    if not problem:
        return _ensemble(facts.servers, Severity.OK, f"holds a record of {size}, the largest that is written", "")
    return _ensemble(
        facts.servers,
        Severity.ERROR,
        f"a record of {size} cannot be written and read: {problem}",
        "check the access rights below high-availability.zookeeper.path.root; set jute.maxbuffer of all servers to its "
        "default of 1 MiB, or more",
    )


def _ensemble(servers: Sequence[ServerFacts], severity: Severity, what: str, fix: str) -> Finding:
    return Finding(check=CHECK, where=",".join(each.where for each in servers), severity=severity, what=what, fix=fix)
