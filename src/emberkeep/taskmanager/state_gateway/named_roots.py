"""The roots that a job's driver has named: its executors reach only these, and the job's own root.

A script may keep checkpoints anywhere, so no configuration lists the roots. The driver's gateway records each root
before the driver uses it, as an empty directory ``.attempts/<number>.roots/<SHA-256 of the location>`` in the job's own
durable root. Executors use a root only after the driver has. The directory ``<number>.roots`` exists before the
attempt's mark; without it, the attempt's driver is from a release that records no roots, and its executors are not
restricted.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable

from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.local_state.attempt_marks import roots_directory
from emberkeep.local_state.model import DRIVER, Caller
from emberkeep.local_state.ports import DurableState
from emberkeep.taskmanager.state_gateway.fences import GatewayFences

_REMEMBERED = 10_000


class NamedRoots:
    """The named roots as one gateway knows them. Any thread may call it."""

    def __init__(self, own_state: Callable[[Caller], DurableState], fences: GatewayFences) -> None:
        """``own_state`` returns the durable store of the own root of a caller's job."""
        self._own_state = own_state
        self._fences = fences
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[JobId, int, str], None] = OrderedDict()  # least recently used first

    def admit(self, caller: Caller, root: str) -> None:
        """Record a root that a driver uses; refuse an executor a root that its driver has not used.

        ``caller`` has been admitted by the fences. ``root``: the canonical location, other than the job's own root.
        Raises InvalidInput, Fenced, RetryLater, Fatal.
        """
        key = (caller.job_id, caller.attempt, root)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return
        own, record = self._own_state(caller), _record(caller.attempt, root)
        if caller.allocation_id == DRIVER:
            own.make_directory(record)
        elif not _exists(own, record):
            self._check_unlimited(own, caller, root)
        with self._lock:
            self._known[key] = None
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def _check_unlimited(self, own: DurableState, caller: Caller, root: str) -> None:
        if _exists(own, roots_directory(caller.attempt)):
            raise InvalidInput(
                f"attempt {caller.attempt} of job {caller.job_id} does not keep state in {root[:200]!r}",
                field="checkpointLocation",
                hint="executors reach the checkpoint locations of the queries that their driver has started",
            )
        # A newer attempt deletes the directory, but its own mark is there before.
        self._fences.check(caller)


def _exists(state: DurableState, name: str) -> bool:
    try:
        state.status(name)
    except Absent:
        return False
    return True


def _record(attempt: int, root: str) -> str:
    return f"{roots_directory(attempt)}/{hashlib.sha256(root.encode()).hexdigest()}"
