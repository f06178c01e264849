"""What can go wrong in a procedure."""

from __future__ import annotations

from emberkeep.base.errors import EmberkeepError


class ProcedureRefused(EmberkeepError):
    """Nothing was changed; the job runs on as before."""


class StepHangs(EmberkeepError):
    """A step of a procedure has not ended in its time, and cannot be ended: it may go on whenever it likes."""


class UserFunctionFailed(EmberkeepError):
    """A user function raised, or an instance of it could not be reached."""


class SavepointDamaged(EmberkeepError):
    """A savepoint's manifest or a file of it is missing, torn or changed."""
