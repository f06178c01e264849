"""Streams of occurrences for tests."""

from __future__ import annotations

from emberkeep.chronicle.occurrence import Occurrence, What, occurrence_id

JOB = "a" * 32


def at(second: int, what: What | str, *, epoch: int = 1, number: int | None = None, **fields: object) -> Occurrence:
    """Return an occurrence at a second after the beginning of time."""
    values: dict[str, object] = {"message": str(what), "job_id": JOB, **fields}
    identifier = occurrence_id(epoch, second if number is None else number)
    return Occurrence(id=identifier, time_ms=second * 1000, what=what, **values)  # type: ignore[arg-type]


def status(second: int, name: str, attempt: int = 1, reason: str = "") -> Occurrence:
    details = {"status": name, "reason": reason} if reason else {"status": name}
    return at(second, What.STATUS, attempt=attempt, details=details)
