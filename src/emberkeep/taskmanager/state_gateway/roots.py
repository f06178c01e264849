"""The durable stores that jobs on this node use: one for each root and user, opened once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_paths import durable_location
from emberkeep.local_state.model import Caller
from emberkeep.local_state.ports import DurableState

_ROOTS_PER_JOB = 256  # a job with more has an error: each query needs one at most
_Key = tuple[str, int | None]
OpenState = Callable[[str, int | None], DurableState]
"""Opens the durable store at a location with the rights of a user id; None: of this process. Raises Fatal."""


class StateRoots:
    """The open durable stores. Any thread may call it."""

    def __init__(self, open_state: OpenState) -> None:
        self._open_state = open_state
        self._lock = threading.Lock()
        self._states: dict[_Key, DurableState] = {}
        self._used: dict[JobId, set[_Key]] = {}

    def state(self, caller: Caller, root: str) -> DurableState:
        """Return the store of a root with the rights of the caller's user; open it if needed.

        Raises Fatal (open failed), InvalidInput (too many roots).
        """
        key = (durable_location(root), caller.user_id)
        with self._lock:
            used = self._used.setdefault(caller.job_id, set())
            if key not in used and len(used) >= _ROOTS_PER_JOB:
                raise InvalidInput(f"job {caller.job_id} keeps state below more than {_ROOTS_PER_JOB} root directories")
            used.add(key)
            state = self._states.get(key)
            if state is None:
                state = self._states[key] = self._open_state(*key)
            return state

    def opened(self, job_id: JobId) -> dict[str, DurableState]:
        """Return the open stores that the job uses, by location."""
        with self._lock:
            return {key[0]: self._states[key] for key in self._used.get(job_id, ()) if key in self._states}

    def forget(self, job_id: JobId) -> None:
        """Close the stores that only this job used."""
        with self._lock:
            others = set[_Key]().union(*(used for other, used in self._used.items() if other != job_id))
            going = self._used.pop(job_id, set()) - others
            states = [self._states.pop(key) for key in going if key in self._states]
        for state in states:
            state.close()

    def close(self) -> None:
        """Close all stores. Idempotent."""
        with self._lock:
            states = list(self._states.values())
            self._states.clear()
            self._used.clear()
        for state in states:
            state.close()
