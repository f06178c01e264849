"""Keep the newest states of user functions next to the job's checkpoints, for the start of later attempts.

The first states are those in the savepoint that the job starts from. Newer ones are kept whenever functions are asked
for their states: for a savepoint before its first file is written, and for a move of the driver. So no savepoint has
newer states than those kept here.

States count even if their savepoint was never completed, because a later attempt does not return to an older savepoint:
its queries continue from their newest committed batches, and the newest states are the closest to these. A record
replaces older ones, so it has the newest known state of every function, also of those that were not asked for it (see
``driver_states``, ``waiting_states``).

```
<root of the job's checkpoints>/_emberkeep_functions/<number>     a record; the one with the highest number counts
```
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog

from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import EmberkeepError, Fatal, NewerFormat
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.base.ids import JobId
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.files.state_locations import StateLocations
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces

log = structlog.get_logger(__name__)

RECORD_KIND, RECORD_VERSION = "function-states", 1
_DIRECTORY = "_emberkeep_functions"
_NAMES_SHOWN = 5
_NUMBER = re.compile(r"@\d+$")  # suffix of an instance's name, if a function has several instances


class KeptStates(Compatible, frozen=True, kw_only=True):
    """Results of ``snapshot_state``, by instance, in ``states``. Persisted (kind "function-states", version 1)."""

    job_id: JobId  # the job that keeps the states
    savepoint: str  # location of the savepoint that they were kept for, complete or not; "" if the driver moved
    created_ms: int  # time of that savepoint or of the move, in Unix milliseconds
    states: dict[str, bytes]


class FunctionStates:
    """Storage of function states. There is one per process, and any thread may use it.

    ``root``: location of the job's own checkpoints. ``may_commit``: returns once this attempt may write.
    """

    def __init__(
        self,
        root: str,
        job_id: JobId,
        attempt: int,
        locations: StateLocations,
        places: CheckpointPlaces,
        may_commit: Callable[[], None],
        notices: Notices,
    ) -> None:
        self._root = root.rstrip("/")
        self._job_id = job_id
        self._attempt = attempt
        self._locations = locations
        self._places = places
        self._may_commit = may_commit
        self._notices = notices
        self._lock = threading.RLock()  # a signal handler of the script may interrupt its holder
        self._begun: Mapping[str, bytes] | None = None

    def begin_with(self, session: Any, started_from: Callable[[], KeptStates | None]) -> Mapping[str, bytes]:
        """Return the states that this attempt's functions begin with, by instance; empty if no states exist.

        All calls in one attempt return the same states. ``started_from``: returns the states in the savepoint that the
        job started from; None without one. It is called if no states are kept yet. Raises Fatal (kept states cannot be
        read), and what ``started_from`` raises.
        """
        with self._lock:
            if self._begun is None:
                self._begun = self._find(session, started_from)
            return self._begun

    def keep(self, session: Any, savepoint: str, created_ms: int, states: Mapping[str, bytes]) -> None:
        """Keep states for later attempts; they are durable when this returns.

        Call this before a savepoint with these states is complete, or before the attempt ends because its driver moves
        (``savepoint`` is "" then). Raises EmberkeepError if they were not kept: neither may happen then.
        """
        kept = KeptStates(job_id=self._job_id, savepoint=savepoint, created_ms=created_ms, states=dict(states))
        with self._lock:
            self._places.require_own()
            files, directory = self._reach(session)
            if kept.states or self._begun or files.numbered(directory):  # otherwise no function has, or had, state
                self._write(session, kept)

    def _find(self, session: Any, started_from: Callable[[], KeptStates | None]) -> Mapping[str, bytes]:
        kept = self._read(session) if self._attempt > 1 else None
        if kept is None:
            kept = started_from()
            if kept is None:
                return {}
            self._try_to_write(session, kept)
        if self._attempt > 1 and kept.states:
            self._notices.say(_notice(self._attempt, kept))
        return kept.states

    def _read(self, session: Any) -> KeptStates | None:
        self._places.wait_for_own()  # if the storage is unavailable, it would look as if no states were kept
        files, directory = self._reach(session)
        numbers = files.numbered(directory)
        if not numbers:
            return None
        where = f"{directory}/{numbers[-1]}"
        try:
            payload = decode_record(files.read_bytes(where), RECORD_KIND, RECORD_VERSION, where=where)
            kept = from_json(payload, KeptStates)
        except NewerFormat:
            raise
        except (Fatal, msgspec.MsgspecError) as error:
            raise Fatal(
                f"cannot read the saved states of functions: {error}",
                hint=f"remove {self._root}/{_DIRECTORY} to start with the states in the savepoint that the job was "
                "started from, or with none",
            ) from error
        return kept if kept.job_id == self._job_id else None

    def _write(self, session: Any, kept: KeptStates) -> None:
        self._places.require_own()
        data = encode_record(RECORD_KIND, RECORD_VERSION, msgspec.json.encode(kept))
        files, directory = self._reach(session)
        before = files.numbered(directory)
        self._may_commit()
        files.write(f"{directory}/{before[-1] + 1 if before else 0}", data)
        for number in before:
            self._forget(files, f"{directory}/{number}")

    @staticmethod
    def _forget(files: HadoopFiles, record: str) -> None:
        """Delete a record that a newer one replaces. If that fails, the next write tries again."""
        try:
            files.delete(record)
        except EmberkeepError as error:
            log.warning("cannot delete older states of functions", record=record, reason=str(error))

    def _try_to_write(self, session: Any, kept: KeptStates) -> None:
        try:
            self._write(session, kept)
        except EmberkeepError as error:
            log.exception("cannot keep the states of functions", savepoint=kept.savepoint, reason=str(error))
            self._notices.say(
                f"warning: cannot keep the states of functions in {kept.savepoint} for later attempts: {error}"
            )

    def _reach(self, session: Any) -> tuple[HadoopFiles, str]:
        reached = self._locations.for_spark(session, self._root).rstrip("/")
        return HadoopFiles(session), f"{reached}/{_DIRECTORY}"


def _notice(attempt: int, kept: KeptStates) -> str:
    names = sorted({_NUMBER.sub("", name) for name in kept.states})
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    at = datetime.fromtimestamp(kept.created_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    when = f"for the savepoint {kept.savepoint}" if kept.savepoint else "when the job's driver moved"
    return (
        f"attempt {attempt} gives its functions the state that they had {when} ({at}): {shown}. Changes that "
        "micro-batches made after that are lost"
    )
