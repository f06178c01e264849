"""The sink's transactions over its ports: batches become pieces, pieces become parts, parts become visible.

Every change is one entry of the commit log, written when all files that it names are complete. After a crash, the next
writer finishes the renames that the newest entry names, and deletes the files that it does not name.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from emberkeep.api.file_sink.arrivals import Arrival, claimed, received, written
from emberkeep.api.file_sink.commit_log import CommitLog
from emberkeep.api.file_sink.committed import Commits
from emberkeep.api.file_sink.errors import OutputUnavailable, SinkFenced
from emberkeep.api.file_sink.model import FileFormat, Limits, PartFile, Piece, SinkState, SinkWriter
from emberkeep.api.file_sink.ports import Frames, ListedFile, SinkFiles
from emberkeep.api.file_sink.rolling import (
    FIRST_GROWTH,
    TakeAsPart,
    Work,
    due,
    grown,
    merged,
    needed,
    next_age_ms,
    published,
    rolled,
)
from emberkeep.base.errors import EmberkeepError, RetryLater

_STAGING, _MERGED, _LOG = "staging", "merged", "log"
_EXTENSION = re.compile(r"-c\d+(\.[^/]+)$")  # the end of a file name that Spark chooses, after the counter
_HIDDEN = ("_", ".")
_LARGER_THAN_FOOTERS = 4 * 2**20  # bytes; a footer has about a hundred for each column


class SinkPlaces(msgspec.Struct, frozen=True, kw_only=True):
    """The sink's directories, on one file system. ``output``: what readers list. ``work``: what they must not see."""

    output: str
    work: str


class PartWriter:
    """Makes pieces and parts. Not thread-safe: one call at a time. Raises the sink's errors, and what Spark raises."""

    def __init__(
        self,
        files: SinkFiles,
        frames: Frames,
        places: SinkPlaces,
        owner: SinkWriter,
        form: FileFormat,
        limits: Limits,
        now_ms: Callable[[], int],
        adopted: str = "",
        restored: tuple[str, int] | None = None,
    ) -> None:
        """``restored``: see Commits."""
        self._files = files
        self._frames = frames
        self._places = places
        self._owner = owner
        self._form = form
        self._limits = limits
        self._now_ms = now_ms
        self._adopted = adopted
        self._commits = Commits(frames, restored)
        self._log = CommitLog(files, f"{places.work}/{_LOG}")
        self._state: SinkState | None = None  # None: unknown; it is read before the next step
        self._has_claimed = False
        self._fenced: SinkFenced | None = None
        self._left: set[str] = set()  # not needed, but could not be deleted
        self._making = False  # True while new directories have no log entry yet; a failure may leave them behind
        self._directories = 0
        self._parts = 0

    # --- what the sink calls ------------------------------------------------------------------------------------------

    def write_batch(self, arrival: Arrival, frame: Any) -> None:
        """Write a batch's rows, still invisible. Show the due rows of earlier batches, which are committed now.

        May be called again after OutputUnavailable.
        """
        opened = self._opened()
        self._log.check()  # before anything is written
        try:
            state = received(opened, arrival, self._places.output, self._adopted)
        except OutputUnavailable:
            self._begin_again()
            raise
        self._commits.arrived(arrival.query, arrival.checkpoint)
        if state is None:
            self._frames.evaluate(frame)
            return
        state = self._rolled(state, through=arrival.batch - 1, everything=False)
        if state.closed:
            self._publish(state)
            state = self._opened()
        schema = self._frames.schema(frame)
        key = hashlib.sha256(schema.encode()).hexdigest()[:12]
        directory = self._new_directory(_STAGING, f"{arrival.batch:06d}")
        self._frames.stage(frame, f"{self._places.work}/{directory}")
        pieces = self._pieces_in(directory, arrival.batch, key)
        self._files.keep([f"{self._places.work}/{piece.path}" for piece in pieces], self._places.work)
        self._commit(written(state, arrival, pieces, (key, schema)))
        if not pieces:  # Spark makes a directory, and often a file, even for no rows
            self._delete(directory)

    def continues(self, query: str, checkpoint: str) -> None:
        """Record that this process has started a query with this checkpoint. Any thread may call this."""
        self._commits.started(query, checkpoint)

    def show_what_is_due(self) -> None:
        """Make visible the rows that became old while no batch arrived.

        A batch that Spark has not committed yet stays invisible. Until the query has started, all batches do,
        because its checkpoint may be replaced before that.
        """
        state = self._opened()
        if not self._commits.is_known(state):
            return
        after = self._rolled(state, through=self._commits.newest(state), everything=False)
        if after.closed:
            self._publish(after)
        elif after is not state:
            self._commit(after)

    def close_parts(self) -> None:
        """Put all committed pieces into complete parts, which stay invisible."""
        state = self._opened()
        after = self._rolled(state, through=self._commits.newest(state), everything=True)
        if after is not state:
            self._commit(after)

    def publish(self) -> None:
        """Make closed parts visible."""
        state = self._opened()
        if state.closed:
            self._publish(state)

    def clean_up(self) -> None:
        """Delete all directories in the work directory that the state does not need."""
        self._sweep(self._opened())

    def next_age_ms(self) -> int | None:
        """Return when the oldest piece becomes due by its age (Unix milliseconds).

        None: never, or not known before the sink reads its output again.
        """
        state = self._state
        return next_age_ms(state, self._limits) if state is not None and self._commits.is_known(state) else None

    def newest(self) -> tuple[str, int]:
        """Return the query and the number of the newest batch of the output, visible or not."""
        state = self._opened()
        return state.query, state.last_batch

    def committed(self) -> tuple[str, int]:
        """Return the query and the number of the newest batch of the output that Spark has committed."""
        state = self._opened()
        return state.query, self._commits.newest(state)

    # --- steps --------------------------------------------------------------------------------------------------------

    def _opened(self) -> SinkState:
        """Return the state. The first call takes the output over from the previous writer."""
        if self._fenced is not None:
            raise self._fenced
        if self._state is None:
            try:
                state = self._claimed()
            except SinkFenced as error:
                self._fenced = error
                raise
            self._has_claimed = True
            self._commits.opened(state)
            self._move(state)
            self._sweep(state)
        assert self._state is not None, "claiming has set it"  # noqa: S101
        if self._making:
            self._making = False
            self._sweep(self._state, f"-{self._owner.writer}-")  # another writer may have taken over in the meantime
        return self._move(self._state)

    def _begin_again(self) -> None:
        """Forget a claim that may be in an unmounted mount point. The log is read again before the next step."""
        self._log = CommitLog(self._files, f"{self._places.work}/{_LOG}")
        self._state, self._has_claimed = None, False

    def _claimed(self) -> SinkState:
        before = self._log.read()
        if self._has_claimed and before is not None and before.owner != self._owner:
            raise SinkFenced(
                f"another writer has taken over {self._places.output}",
                hint="a newer attempt of this job writes there, or a second sink has the same path",
            )
        if before is not None and before.owner == self._owner and not before.query:
            self._state = before  # claimed before, and nothing has been written since
            return before
        state = claimed(before, self._owner, FIRST_GROWTH[self._form], self._places.output)
        self._commit(state)
        return state

    def _commit(self, state: SinkState) -> None:
        """Append ``state`` to the log, then delete the files that only the previous state needs."""
        before, self._state = self._state, None
        try:
            self._log.append(state)
        except SinkFenced as error:
            self._fenced = error
            raise
        self._state, self._making = state, False
        if before is not None:
            self._drop(before, state)

    def _rolled(self, state: SinkState, *, through: int, everything: bool) -> SinkState:
        """Merge the pieces that are due, or turn them into finished part files. Return the new, uncommitted state."""
        work = due(state, self._limits, self._form, self._now_ms(), through=through, everything=everything)
        for one in work:
            state = self._done(state, one)
        return state

    def _done(self, state: SinkState, work: Work) -> SinkState:
        if isinstance(work, TakeAsPart):
            part = self._part((work.piece,), work.piece.path)
            return rolled(state, (work.piece,), (), (part,))
        paths = [f"{self._places.work}/{piece.path}" for piece in work.pieces]
        directory = self._new_directory(_MERGED, "part" if work.is_part else "piece")
        absolute = f"{self._places.work}/{directory}"
        self._frames.merge(paths, state.schemas[work.pieces[0].schema], absolute, is_part=work.is_part)
        found = [file for file in self._files.files(absolute) if _is_data(file.path)]
        if len(found) != 1:
            raise RetryLater(f"Spark wrote {len(found)} files instead of one when it merged {len(paths)} files")
        path = f"{directory}/{found[0].path}"
        self._files.keep([f"{absolute}/{found[0].path}"], self._places.work)
        if not work.is_part:
            return rolled(state, work.pieces, (merged(work.pieces, path, found[0].size),), ())
        state = grown(state, sum(piece.size for piece in work.pieces), found[0].size)
        return rolled(state, work.pieces, (), (self._part(work.pieces, path),))

    def _part(self, pieces: Sequence[Piece], source: str) -> PartFile:
        self._parts += 1
        first, last = min(piece.first for piece in pieces), max(piece.last for piece in pieces)
        extension = _EXTENSION.search(source)
        name = f"part-{max(first, 0):06d}-{max(last, 0):06d}-{self._owner.writer}-{self._parts}"
        name += extension.group(1) if extension else f".{self._form.value}"
        bucket = pieces[0].bucket
        return PartFile(first=first, last=last, source=source, target=f"{bucket}/{name}" if bucket else name)

    def _publish(self, state: SinkState) -> None:
        after = published(state)
        self._commit(after)
        self._move(after)

    def _move(self, state: SinkState) -> SinkState:
        """Finish the renames that ``state``, the committed state, contains. Return the state without them."""
        if not state.moves:
            return state
        for part in state.moves:
            self._files.move(f"{self._places.work}/{part.source}", f"{self._places.output}/{part.target}")
        self._log.check()  # in an unmounted mount point, each source looks as if it had been moved already
        self._state = after = msgspec.structs.replace(state, moves=())
        self._drop(state, after)
        return after

    # --- files --------------------------------------------------------------------------------------------------------

    def _new_directory(self, kind: str, name: str) -> str:
        self._directories += 1
        self._making = True
        return f"{kind}/{name}-{self._owner.writer}-{self._directories}"

    def _pieces_in(self, directory: str, batch: int, schema: str) -> tuple[Piece, ...]:
        absolute = f"{self._places.work}/{directory}"
        found = [file for file in self._files.files(absolute) if _is_data(file.path)]
        counted = [file for file in found if self._limits.max_rows is not None or _may_be_empty(file)]
        rows = dict(
            zip(
                (file.path for file in counted),
                self._frames.rows([f"{absolute}/{file.path}" for file in counted]),
                strict=True,
            )
        )
        return tuple(
            Piece(
                first=batch,
                last=batch,
                bucket=file.path.rpartition("/")[0],
                path=f"{directory}/{file.path}",
                size=file.size,
                schema=schema,
                since_ms=self._now_ms(),
                rows=rows.get(file.path),
            )
            for file in found
            if rows.get(file.path) != 0
        )

    def _drop(self, before: SinkState, after: SinkState) -> None:
        kept = needed(after)
        gone = needed(before) - kept
        kept_directories = {_directory_of(path) for path in kept}
        directories = {_directory_of(path) for path in gone} - kept_directories
        files = {path for path in gone if _directory_of(path) in kept_directories}
        left, self._left = self._left, set()
        for path in sorted(directories | files | left):
            self._delete(path)

    def _sweep(self, state: SinkState, part_of_name: str = "") -> None:
        kept = {_directory_of(path) for path in needed(state)}
        for kind in (_STAGING, _MERGED):
            for name in self._files.names(f"{self._places.work}/{kind}"):
                if f"{kind}/{name}" not in kept and part_of_name in name:
                    self._delete(f"{kind}/{name}")

    def _delete(self, path: str) -> None:
        """Delete a file or directory. After a failure, retry with the next deletions or when the next writer starts."""
        try:
            self._files.delete(f"{self._places.work}/{path}")
        except EmberkeepError:
            self._left.add(path)


def _directory_of(path: str) -> str:
    """Return the directory of a batch or a merge: the first two components of ``path``."""
    return "/".join(path.split("/")[:2])


def _may_be_empty(file: ListedFile) -> bool:
    """True if the file may have no rows: without partition columns, Spark writes one for a batch's first task anyway.

    Such a file has a footer only, which is small. To look into a file takes time, so large ones are not looked into.
    """
    return file.path.startswith("part-00000") and file.size < _LARGER_THAN_FOOTERS


def _is_data(path: str) -> bool:
    """True for a file with rows. The directory of a partition is none of Spark's own, whatever its column is called."""
    *directories, leaf = path.split("/")
    return not leaf.startswith(_HIDDEN) and not any(
        name.startswith(_HIDDEN) and "=" not in name for name in directories
    )
