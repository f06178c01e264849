"""Errors of procedures and savepoints."""

from __future__ import annotations

from emberkeep.base.errors import EmberkeepError


class ProcedureRefused(EmberkeepError):
    """The procedure was refused. Nothing was changed; the job continues as before."""


class NeverPossible(ProcedureRefused):
    """The procedure was refused, and will be for as long as the job runs the same queries."""


class TooLate(ProcedureRefused):
    """The procedure was refused because it was not as far as it had to be when its time was over."""


class StepHangs(EmberkeepError):
    """A step of a procedure exceeded its deadline and cannot be stopped: it may continue at any time."""


class UserFunctionFailed(EmberkeepError):
    """A user function raised, or one of its instances could not be reached."""


class SavepointDamaged(EmberkeepError):
    """A savepoint's manifest, or one of its files, is missing, torn or changed."""
