"""The marks of a job's attempts, as its driver writes and reads them: see ``local_state.attempt_marks``."""

from __future__ import annotations

from emberkeep.adapters.state.spool import FileSpool
from emberkeep.base.errors import Conflict, EmberkeepError, Unavailable
from emberkeep.daemons.driver.storage import open_state_of, require_own_place
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.local_state.attempt_marks import clear_older_marks, marked_attempts, write_mark
from emberkeep.local_state.gateway_paths import durable_location
from emberkeep.local_state.ports import DurableState


class AttemptMarks:
    """The marks in the root of the driver's job. All methods block; one thread at a time may call them.

    A first attempt writes no mark, as there is no older attempt to end.
    """

    def __init__(self, spec: DriverSpec) -> None:
        self._spec = spec
        self._is_written = False

    def write(self) -> None:
        """Write this attempt's mark durably: older attempts that read it end themselves.

        Call before the script runs. Raises Conflict if a newer attempt has a mark, Unavailable if the mark cannot be
        written now.
        """
        attempt = self._spec.attempt
        if attempt <= 1:
            return
        try:
            own = self._opened()
            write_mark(own, attempt, FileSpool())
            newest = max(marked_attempts(own))
            if newest == attempt:
                clear_older_marks(own, attempt)
        except EmberkeepError as error:
            raise Unavailable(
                f"cannot write the mark of attempt {attempt} below {self._spec.checkpoint_root}, which ends an older "
                f"attempt that is cut off: {error}",
                hint=error.hint or "check the free space and the permissions of that directory on this node",
            ) from error
        if newest > attempt:
            raise Conflict(f"attempt {newest} of job {self._spec.graph.job_id} has begun")
        self._is_written = True

    def newest(self) -> int:
        """Return the newest attempt that has a mark; 0 if none has one.

        Raises Unavailable if the storage cannot be read here now: the marks that exist would look absent.
        """
        try:
            require_own_place(self._spec)
            newest = max(marked_attempts(self._opened()), default=0)
        except EmberkeepError as error:
            raise Unavailable(f"cannot read the marks of attempts: {error}", hint=error.hint) from error
        if self._is_written and newest < self._spec.attempt:
            raise Unavailable(f"the mark of this attempt is not below {self._spec.checkpoint_root} now")
        return newest

    def _opened(self) -> DurableState:
        return open_state_of(self._spec, durable_location(self._spec.checkpoint_root))
