"""Versions: whether the processes of the cluster, and the clients on this machine, fit together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from emberkeep.diagnosis.model import Finding, Severity

CHECK: Final = "versions"
_FINISH: Final = "finish the upgrade: a cluster runs with two releases only while it is upgraded"


class NodeVersions(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of one process, as it reports them. ``java``: 0 if unknown; others "" if unknown."""

    where: str
    emberkeep: str = ""
    python: str = ""
    spark: str = ""
    java: int = 0


def version_findings(
    here: NodeVersions,
    job_manager: NodeVersions | None,
    task_managers: Sequence[NodeVersions],
    standbys: Sequence[NodeVersions] = (),
) -> list[Finding]:
    """Return what does not fit. ``here``: the clients on this machine. Slots are matched by Python and Spark.

    ``job_manager``: the leader. ``standbys``: JobManagers that stand by.
    """
    findings = []
    if job_manager is not None:
        findings.append(_job_manager(here, job_manager))
        findings += [_standby(job_manager, each) for each in standbys]
    fit = [each for each in task_managers if (each.python, each.spark) == (here.python, here.spark)]
    for each in task_managers:
        differ = _differences(here, each)
        severity = Severity.OK if not differ else Severity.WARNING if fit else Severity.ERROR
        what = f"Python {each.python}, Spark {each.spark}, Java {each.java}"
        if differ:
            what = f"{what}; this machine has {differ}"
        fix = "jobs that are submitted here do not run there: install the same versions" if differ else ""
        findings.append(Finding(check=CHECK, where=each.where, severity=severity, what=what, fix=fix))
    if job_manager is not None:
        findings += _other_releases(job_manager, task_managers)
    javas = sorted({each.java for each in task_managers if each.java})
    if len(javas) > 1:
        what = f"task managers have several versions of Java: {', '.join(map(str, javas))}"
        fix = "install one version everywhere: a driver and its executors may land on any of them"
        findings.append(Finding(check=CHECK, where="all nodes", severity=Severity.WARNING, what=what, fix=fix))
    return findings


def _job_manager(here: NodeVersions, job_manager: NodeVersions) -> Finding:
    what = f"Emberkeep {job_manager.emberkeep}"
    if job_manager.emberkeep == here.emberkeep:
        return Finding(check=CHECK, where=job_manager.where, severity=Severity.OK, what=what)
    return Finding(
        check=CHECK,
        where=job_manager.where,
        severity=Severity.WARNING,
        what=f"{what}; this machine has {here.emberkeep}",
        fix="upgrade the older one, the JobManagers before the clients",
    )


def _standby(leader: NodeVersions, standby: NodeVersions) -> Finding:
    if not standby.emberkeep:
        what = "an old release of Emberkeep, which does not report its version"
    elif standby.emberkeep == leader.emberkeep:
        return Finding(check=CHECK, where=standby.where, severity=Severity.OK, what=f"Emberkeep {standby.emberkeep}")
    else:
        what = f"Emberkeep {standby.emberkeep}"
    return Finding(
        check=CHECK,
        where=standby.where,
        severity=Severity.WARNING,
        what=f"{what}; {leader.where} has {leader.emberkeep}",
        fix=_FINISH,
    )


def _other_releases(job_manager: NodeVersions, task_managers: Sequence[NodeVersions]) -> list[Finding]:
    """Return task managers with another Emberkeep than the leader. Those of old releases do not report theirs."""
    return [
        Finding(
            check=CHECK,
            where=each.where,
            severity=Severity.WARNING,
            what=f"Emberkeep {each.emberkeep}; {job_manager.where} has {job_manager.emberkeep}",
            fix=_FINISH,
        )
        for each in task_managers
        if each.emberkeep not in ("", job_manager.emberkeep)
    ]


def _differences(here: NodeVersions, there: NodeVersions) -> str:
    pairs = (("Python", here.python, there.python), ("Spark", here.spark, there.spark))
    return ", ".join(f"{name} {own or 'none'}" for name, own, other in pairs if own != other)
