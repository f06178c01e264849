"""Roots of all errors.

Every error that a user may see carries three things: what was wrong, where, and what to do next. Adapters translate
outside errors into the five outcomes that a caller can act upon: *retry*, *conflict*, *absent*, *fatal* and *unknown
outcome* (the caller reads back before it acts again).
"""

from __future__ import annotations


class EmberkeepError(Exception):
    """Root of all errors of this project. ``hint`` says what the reader can do about it."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


class InvalidInput(EmberkeepError):
    """The caller sent something invalid; ``field`` names the part. Nothing has changed."""

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class RetryLater(EmberkeepError):
    """The operation did not happen and may be tried again."""


class OverQuota(RetryLater):
    """The caller is over a quota, and may try again after ``seconds``."""

    def __init__(self, message: str, *, hint: str | None = None, seconds: float) -> None:
        super().__init__(message, hint=hint)
        self.seconds = seconds


class Unavailable(RetryLater):
    """Data cannot be read or written now: a mount is missing, a server does not answer, or access is denied.

    The data must not be taken for lost or damaged: nothing may be deleted and no job may fail because of this error.
    """


class Conflict(EmberkeepError):
    """Another process changed the thing first, or has the right to it (a higher epoch or attempt)."""


class Forbidden(EmberkeepError):
    """The role or the namespace of the caller does not permit the request. Nothing has changed."""


class Absent(EmberkeepError):
    """The requested thing does not exist."""


class Fatal(EmberkeepError):
    """The operation cannot succeed without a change from outside (no space, no permission, corrupt data)."""


class Damaged(Fatal):
    """Data was read whole and does not match its checksum, length or schema. Reading it again does not help."""


class NewerFormat(Fatal):
    """Data is sound, but a newer release wrote it. This release must neither change it nor base decisions on it."""


class UnknownOutcome(EmberkeepError):
    """The operation may or may not have happened: read back before acting again."""


class IllegalTransition(EmberkeepError):
    """A state machine received an event that its table does not list. Carries the recent history."""

    def __init__(self, machine: str, state: str, event: str, history: tuple[str, ...]) -> None:
        super().__init__(f"{machine}: event {event} is illegal in state {state}; history: {' | '.join(history)}")
        self.history = history
