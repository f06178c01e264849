"""Why a state file cannot be served as it was asked for."""

from __future__ import annotations

from emberkeep.base.errors import Conflict, EmberkeepError


class Fenced(Conflict):
    """The caller's attempt is over: nothing of it may be written or read any more (P3)."""


class Exists(Conflict):
    """A file of this name is there, and it was not to be replaced."""


class NotADirectory(Conflict):
    """A part of the name is a file."""


class IsADirectory(Conflict):
    """The name is that of a directory."""


class NotEmpty(Conflict):
    """The directory has entries, and deleting was not to be recursive."""


class DamagedCopy(EmberkeepError):
    """A local copy is torn, flipped or stale: it counts as absent and is removed. Never told to Spark."""
