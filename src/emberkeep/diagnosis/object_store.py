"""Object stores: whether one keeps what Emberkeep writes there, in the way that recovery relies on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from emberkeep.diagnosis.model import Finding, Severity
from emberkeep.diagnosis.storage import CHECK


class ObjectStep(StrEnum):
    """What is tried in an object store, in this order. ``OPEN`` sends nothing."""

    OPEN = "use the location"
    CREATE = "write an object"
    READ_BACK = "read back what was written"
    REPLACE = "replace an object so that readers see the new content"
    LIST = "list what was written"
    CREATE_ONCE = "refuse to write an object that exists"
    COPY_ONCE = "refuse to copy over an object that exists"
    PARTS = "write an object in parts"
    DELETE = "delete objects so that they are no longer listed"


# A store on which these fail still works, but two processes can overwrite what each other writes at the same time.
CONDITIONAL: Final = frozenset({ObjectStep.CREATE_ONCE, ObjectStep.COPY_ONCE})
_NEEDS: Mapping[ObjectStep, str] = MappingProxyType(
    {
        ObjectStep.OPEN: "correct the location",
        ObjectStep.CREATE: "permit the credentials of the cluster's processes to write objects there",
        ObjectStep.READ_BACK: "permit reading objects, and use a store on which readers see what was written before",
        ObjectStep.REPLACE: "use a store on which readers see the newest content: check caches and proxies before it",
        ObjectStep.LIST: "permit listing the bucket, and use a store whose lists are up to date: recovery needs them",
        ObjectStep.CREATE_ONCE: "use a store with conditional writes (If-None-Match): without them, two clusters, or "
        "two attempts of a job, that write at the same time replace each other's objects",
        ObjectStep.COPY_ONCE: "use a store with conditional copies: without them, two attempts of a job that rename a "
        "file at the same time replace each other's file",
        ObjectStep.PARTS: "permit uploads in parts: files of more than 8 MiB are sent in parts",
        ObjectStep.DELETE: "permit deleting objects, and use a store on which deleted objects are gone",
    }
)


class ObjectProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A step that did not work. ``hint``: what the store's error says to do; "" for the step's own advice."""

    step: ObjectStep
    reason: str
    hint: str = ""


class ObjectStoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An object store that was tried. ``purpose``: what it is for, with the option that names it.

    A failed step ends the trial, unless it is in CONDITIONAL.
    """

    location: str
    purpose: str
    problems: tuple[ObjectProblem, ...] = ()


def object_store_findings(facts: ObjectStoreFacts) -> list[Finding]:
    """Return the findings about one object store."""
    where = f"{facts.location} ({facts.purpose})"
    if not facts.problems:
        what = f"all {len(ObjectStep)} steps work"
        return [Finding(check=CHECK, where=where, severity=Severity.OK, what=what)]
    return [
        Finding(
            check=CHECK,
            where=where,
            severity=Severity.WARNING if problem.step in CONDITIONAL else Severity.ERROR,
            what=f"cannot {problem.step.value}: {problem.reason}",
            fix=problem.hint or _NEEDS[problem.step],
        )
        for problem in facts.problems
    ]
