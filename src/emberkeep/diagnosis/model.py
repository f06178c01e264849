"""Findings and reports. Programs read a report as JSON: a new field has a default, and none changes its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

FORMAT: Final = 1


class Severity(StrEnum):
    """How urgent a finding is, the most urgent last."""

    OK = "ok"
    UNKNOWN = "unknown"  # it could not be looked at, so it may be good or bad
    WARNING = "warning"  # works now, and will not under some conditions that the finding names
    ERROR = "error"  # does not work


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check of one thing.

    ``check``: its kind, such as "clock". ``where``: the machine, file or address. ``what``: what was found. ``fix``:
    what to do about it; "" if there is nothing to do.
    """

    check: str
    where: str
    severity: Severity
    what: str
    fix: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of one run. ``version``: the format of the report."""

    version: int = FORMAT
    findings: list[Finding]

    @property
    def worst(self) -> Severity:
        return max((finding.severity for finding in self.findings), key=list(Severity).index, default=Severity.OK)


def gravest_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that need a person first. Those of equal gravity keep their order."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: -order.index(finding.severity))
