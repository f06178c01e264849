"""This machine and the nodes: Java, free disk, descriptors, control groups."""

from __future__ import annotations

from typing import Final

import msgspec

from emberkeep.diagnosis.model import Finding, Severity

_MIB: Final = 1024**2
DISK_ERROR: Final = 256 * _MIB
DISK_WARNING: Final = 2048 * _MIB
MEMORY_ERROR: Final = 128 * _MIB  # below, a JobManager or a task manager is killed: see docs/limits.md
MEMORY_WARNING: Final = 2048 * _MIB  # both of them, and the smallest driver and executor
DESCRIPTORS_ERROR: Final = 1024
DESCRIPTORS_WARNING: Final = 4096
_LAST_OF_ROCKSDB: Final = "\uffff"


class JavaFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The Java of this machine. ``problem``: why there is none that Spark can use; "" if there is."""

    major: int = 0
    problem: str = ""
    hint: str = ""


class DiskFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The free bytes of a file system. None: they could not be read, with the ``problem``."""

    where: str
    free: int | None
    problem: str = ""


class MemoryFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes that new processes may use. None: they could not be read, with the ``problem``."""

    free: int | None
    problem: str = ""


def java_findings(facts: JavaFacts) -> list[Finding]:
    """Return whether Spark can run here."""
    severity, what = (Severity.ERROR, facts.problem) if facts.problem else (Severity.OK, f"Java {facts.major}")
    return [Finding(check="java", where="this machine", severity=severity, what=what, fix=facts.hint)]


def disk_findings(facts: DiskFacts) -> list[Finding]:
    """Return whether there is enough space."""
    if facts.free is None:
        fix = "check that its file system is mounted, and that this user may read it"
        what = f"the free space cannot be read: {facts.problem}"
        return [Finding(check="disk", where=facts.where, severity=Severity.UNKNOWN, what=what, fix=fix)]
    severity = (
        Severity.ERROR if facts.free < DISK_ERROR else Severity.WARNING if facts.free < DISK_WARNING else Severity.OK
    )
    fix = "" if severity is Severity.OK else "free space there: logs, working directories of ended jobs, old savepoints"
    return [Finding(check="disk", where=facts.where, severity=severity, what=f"{_size(facts.free)} free", fix=fix)]


def memory_findings(facts: MemoryFacts) -> list[Finding]:
    """Return whether there is enough memory for a daemon and a small job."""
    where = "this machine, this user"
    if facts.free is None:
        what = f"the free memory cannot be read: {facts.problem}"
        return [Finding(check="memory", where=where, severity=Severity.UNKNOWN, what=what)]
    severity = Severity.OK
    if facts.free < MEMORY_WARNING:
        severity = Severity.ERROR if facts.free < MEMORY_ERROR else Severity.WARNING
    fix = "" if severity is Severity.OK else "free memory, or raise the limit of the container or service (MemoryMax=)"
    what = f"processes may use {_size(facts.free)}"
    return [Finding(check="memory", where=where, severity=severity, what=what, fix=fix)]


def path_findings(path: str, where: str) -> list[Finding]:
    """Return a finding if RocksDB cannot open the state that streaming jobs keep below ``path``.

    It takes paths from the JVM in a form of UTF-8 that has other bytes for characters beyond U+FFFF.
    """
    if all(character <= _LAST_OF_ROCKSDB for character in path):
        return []
    what = f"RocksDB state stores cannot be opened in {path}: the path has characters beyond U+FFFF, such as emoji"
    fix = "choose a directory without them"
    return [Finding(check="path", where=where, severity=Severity.WARNING, what=what, fix=fix)]


def cgroup_findings(where: str, told: str) -> list[Finding]:
    """Return what control groups bound on a node, as its task manager reports it; nothing of old releases.

    A task manager that needs groups and cannot make them does not start, so none is what its owner has chosen.
    """
    return [Finding(check="cgroups", where=where, severity=Severity.OK, what=told)] if told else []


def descriptor_findings(soft: int) -> list[Finding]:
    """Return whether a process may open enough files and connections. ``soft``: its limit; negative for none."""
    where = "this machine, this user"
    what = f"a process may open {soft} files and connections" if soft >= 0 else "open files are not limited"
    if soft < 0 or soft >= DESCRIPTORS_WARNING:
        return [Finding(check="descriptors", where=where, severity=Severity.OK, what=what)]
    severity = Severity.ERROR if soft < DESCRIPTORS_ERROR else Severity.WARNING
    fix = "raise it to 65536: `ulimit -n`, LimitNOFILE= of the service, or limits.conf"
    return [Finding(check="descriptors", where=where, severity=severity, what=what, fix=fix)]


def _size(number: int) -> str:
    return f"{number / _MIB / 1024:.1f} GiB" if number >= 1024 * _MIB else f"{number // _MIB} MiB"
