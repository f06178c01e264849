"""The durable stores that jobs on this node use: one for each root, opened once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_paths import durable_location
from emberkeep.local_state.ports import DurableState

_ROOTS_PER_JOB = 256  # a job with more has an error: each query needs one at most


class StateRoots:
    """The open durable stores. Any thread may call it."""

    def __init__(self, open_state: Callable[[str], DurableState]) -> None:
        self._open_state = open_state
        self._lock = threading.Lock()
        self._states: dict[str, DurableState] = {}
        self._users: dict[JobId, set[str]] = {}

    def state(self, job_id: JobId, root: str) -> DurableState:
        """Return the store of a root; open it if needed. Raises Fatal (open failed), InvalidInput (too many roots)."""
        root = durable_location(root)
        with self._lock:
            used = self._users.setdefault(job_id, set())
            if root not in used and len(used) >= _ROOTS_PER_JOB:
                raise InvalidInput(f"job {job_id} keeps state below more than {_ROOTS_PER_JOB} root directories")
            used.add(root)
            state = self._states.get(root)
            if state is None:
                state = self._states[root] = self._open_state(root)
            return state

    def opened(self) -> dict[str, DurableState]:
        """Return the open stores by location."""
        with self._lock:
            return dict(self._states)

    def forget(self, job_id: JobId) -> None:
        """Close the stores that only this job used."""
        with self._lock:
            others = set[str]().union(*(used for user, used in self._users.items() if user != job_id))
            going = self._users.pop(job_id, set()) - others
            states = [self._states.pop(root) for root in going if root in self._states]
        for state in states:
            state.close()

    def close(self) -> None:
        """Close all stores. Idempotent."""
        with self._lock:
            states = list(self._states.values())
            self._states.clear()
            self._users.clear()
        for state in states:
            state.close()
