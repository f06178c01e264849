"""Why the gateway cannot serve a request for a state file."""

from __future__ import annotations

from emberkeep.base.errors import Conflict, EmberkeepError


class Fenced(Conflict):
    """The caller's attempt has ended: it may no longer write or read (P3)."""


class Exists(Conflict):
    """A file of this name exists and must not be replaced."""


class NotADirectory(Conflict):
    """A part of the name is a file."""


class IsADirectory(Conflict):
    """The name belongs to a directory."""


class NotEmpty(Conflict):
    """The directory has entries, and the deletion is not recursive."""


class DamagedCopy(EmberkeepError):
    """A local copy is torn, altered or stale: it counts as absent and is removed. Never reported to Spark."""
