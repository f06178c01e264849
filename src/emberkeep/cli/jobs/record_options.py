"""Options of ``emberkeep logs`` that search a log for records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from emberkeep.cli.moments import moment


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class RecordChoice:
    """Options that select records: a message with all its lines, such as a stack trace, is one record."""

    grep: Annotated[tuple[str, ...], Parameter(metavar="TEXT", negative=(), allow_leading_hyphen=True)] = ()
    "Print only records that contain this text, in any case. Repeat it to require several texts."
    level: Literal["trace", "debug", "info", "warn", "error", "fatal"] | None = None
    "Print only records of this level or a more severe one."
    since: Annotated[str | None, Parameter(metavar="TIME")] = None
    "Time of the oldest records: how long ago, such as 30min or 2d, or 2026-01-31T18:00 (local time)."
    until: Annotated[str | None, Parameter(metavar="TIME")] = None
    "Time of the newest records, in the same form."

    def parameters(self, now_ms: int) -> dict[str, str | list[str]]:
        """Return the query parameters of the search; none if all records are selected. Raises InvalidInput."""
        given: dict[str, str | list[str] | None] = {
            "text": list(self.grep) or None,
            "level": self.level,
            "since": moment("--since", self.since, now_ms),
            "until": moment("--until", self.until, now_ms),
        }
        return {name: value for name, value in given.items() if value is not None}
