"""Error roots.

Every error that a user may see carries three things: what was wrong, where, and what to do next. Adapters translate
outside errors into the five outcomes that a caller can act upon: *retry*, *conflict*, *absent*, *fatal* and
*unknown outcome* (after which the caller reads back before it acts again).
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
    """The caller sent something wrong; ``field`` names which part. Nothing has changed."""

    def __init__(self, message: str, *, field: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.field = field


class RetryLater(EmberkeepError):
    """The operation did not happen and may be tried again."""


class Unavailable(RetryLater):
    """A place cannot be read or written at the moment: a mount is absent, a server is silent, access is denied.

    What lies there is neither gone nor damaged. Nothing may be deleted and no job may fail because of this error.
    """


class Conflict(EmberkeepError):
    """Somebody else changed the thing first, or has the right to it (a higher epoch or attempt)."""


class Absent(EmberkeepError):
    """The thing asked for does not exist."""


class Fatal(EmberkeepError):
    """The operation cannot succeed without a change from outside (no space, no permission, corrupt data)."""


class Damaged(Fatal):
    """Data was read whole and does not fit its checksum, its length or its schema. Reading it again changes nothing."""


class NewerFormat(Fatal):
    """Data is sound, but a newer release wrote it. This release must leave it alone, and must not decide about it."""


class UnknownOutcome(EmberkeepError):
    """The operation may or may not have happened: read back before acting again."""


class IllegalTransition(EmberkeepError):
    """A state machine was given an event that its table does not list; carries its recent history."""

    def __init__(self, machine: str, state: str, event: str, history: tuple[str, ...]) -> None:
        super().__init__(f"{machine}: event {event} is not possible in state {state}; history: {' | '.join(history)}")
        self.history = history
