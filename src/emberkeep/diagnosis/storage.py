"""Storage: whether a directory keeps what Emberkeep writes there, in the way that recovery relies on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from emberkeep.diagnosis.model import Finding, Severity

CHECK: Final = "storage"


class Step(StrEnum):
    """What is tried in a directory, in this order. Each step needs the ones before."""

    CREATE = "create a file"
    SYNC = "sync the file to the disk"
    REPLACE = "replace a file by renaming another"
    SYNC_DIRECTORY = "sync the directory to the disk"
    READ_BACK = "read back what was written"
    LIST = "list what was written, under its new name only"
    CREATE_ONCE = "refuse to create a file that exists"
    DELETE = "delete a file so that it is no longer listed"


_NEEDS: Mapping[Step, str] = MappingProxyType(
    {
        Step.CREATE: "let the user of the cluster's processes write there, and check that the mount is not read-only",
        Step.SYNC: "use a file system with a working fsync: without one, records are lost in a power failure",
        Step.REPLACE: "use a file system with an atomic rename: object stores that are mounted as one often lack it",
        Step.SYNC_DIRECTORY: "use a file system that syncs directories: without that, new names are lost in a power "
        "failure",
        Step.READ_BACK: "use a file system on which readers see what was written before: check its cache options",
        Step.LIST: "use a file system whose directory lists are up to date: recovery lists directories",
        Step.CREATE_ONCE: "use a file system that creates a file for one of several callers only (O_EXCL, hard links)",
        Step.DELETE: "use a file system on which deleted files are gone: check its cache options",
    }
)
_VOLATILE = frozenset({"tmpfs", "ramfs", "devtmpfs"})
_OF_CONTAINERS = frozenset({"overlay", "aufs"})


class StorageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A directory that was tried. ``purpose``: what it is for, with the option that names it.

    ``failed``: the step that did not work, with the ``reason``; None if all did. ``missing``: the directory does not
    exist, and ``parent_writable`` says whether this user could make it. ``file_system``: its type; "" if unknown.
    """

    path: str
    purpose: str
    failed: Step | None = None
    reason: str = ""
    missing: bool = False
    parent_writable: bool = True
    file_system: str = ""


def storage_findings(facts: StorageFacts) -> list[Finding]:
    """Return the findings about one directory."""
    where = f"{facts.path} ({facts.purpose})"
    if facts.missing:
        return [_missing(facts, where)]
    if facts.failed is not None:
        what = f"cannot {facts.failed.value}: {facts.reason}"
        return [Finding(check=CHECK, where=where, severity=Severity.ERROR, what=what, fix=_NEEDS[facts.failed])]
    if facts.file_system in _VOLATILE | _OF_CONTAINERS:
        kind = "the memory of this machine" if facts.file_system in _VOLATILE else "a container's own layer"
        return [
            Finding(
                check=CHECK,
                where=where,
                severity=Severity.WARNING,
                what=f"it is in {kind} ({facts.file_system}), and lost with it",
                fix="name a directory on a disk or a volume, if jobs must survive that loss",
            )
        ]
    return [Finding(check=CHECK, where=where, severity=Severity.OK, what=f"all {len(Step)} steps work")]


def _missing(facts: StorageFacts, where: str) -> Finding:
    if facts.parent_writable:
        what, fix = "does not exist; the first JobManager creates it", "if it is a mount, mount it first"
        return Finding(check=CHECK, where=where, severity=Severity.UNKNOWN, what=what, fix=fix)
    return Finding(
        check=CHECK,
        where=where,
        severity=Severity.ERROR,
        what="does not exist, and this user may not create it",
        fix="mount it, or create it for the user of the cluster's processes",
    )
