"""The newest known state of each function in the driver, for savepoints and later attempts.

A snapshot must not omit a function only because the script has not registered it yet, or has closed it already: later
attempts run the script from its beginning, and would give the function no state, or one that is older than that in a
savepoint. So such a function keeps the state of its last snapshot, or the one that it is to begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emberkeep.spark.functions.waiting_states import is_of_executors


class DriverStates:
    """Newest states by function. Not thread-safe.

    ``restored``: returns the states that the job begins with. It is called at the first snapshot.
    """

    def __init__(self, restored: Callable[[], Mapping[str, bytes]]) -> None:
        self._restored = restored
        self._newest: dict[str, bytes] | None = None  # None: not read yet

    def snapshot(self, taken: Mapping[str, bytes | None]) -> dict[str, bytes]:
        """Return the newest states. ``taken``: those of the functions that run, None for one that has no state."""
        if self._newest is None:
            restored = self._restored()
            self._newest = {name: state for name, state in restored.items() if not is_of_executors(name)}
        for name, state in taken.items():
            if state is None:
                self._newest.pop(name, None)
            else:
                self._newest[name] = state
        return dict(self._newest)
