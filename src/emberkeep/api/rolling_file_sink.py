"""A file sink for streaming queries: each row exactly once, in few files of a good size, visible once committed."""

from __future__ import annotations

import secrets
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any

from emberkeep.api.file_sink.age_watch import AgeWatch
from emberkeep.api.file_sink.errors import BatchesMissing, OutputUnavailable, SinkClosed
from emberkeep.api.file_sink.hadoop_files import HadoopSinkFiles
from emberkeep.api.file_sink.local_files import LocalFiles
from emberkeep.api.file_sink.model import NOTHING_YET, FileFormat, Limits, SinkWriter
from emberkeep.api.file_sink.part_writer import PartWriter, SinkPlaces
from emberkeep.api.file_sink.ports import SinkFiles
from emberkeep.api.file_sink.spark_frames import SparkFrames
from emberkeep.api.functions import FollowsQueries
from emberkeep.api.job import current_job
from emberkeep.api.session import session_of_process
from emberkeep.base.errors import InvalidInput, RetryLater
from emberkeep.base.processes.standard_streams import say

_STATE_VERSION = 1
_PAUSE_SECONDS = 1.0  # between tries to write to an output that is unavailable
_NEWEST: weakref.WeakValueDictionary[str, RollingFileSink] = weakref.WeakValueDictionary()  # by work directory
_MIB = 2**20


class RollingFileSink(FollowsQueries):
    """Give it to ``foreachBatch``: ``df.writeStream.foreachBatch(RollingFileSink("/data/out")).start()``.

    A micro-batch's rows wait, invisible, until the pieces of their partition reach ``max_bytes`` or ``max_rows``, or
    the oldest of them is ``max_age`` old (seconds, or a timedelta). Then they become part files in ``path``, each of
    which appears complete. So part files span batches and checkpoints. Rows become visible only after Spark has
    committed their batch. A process that dies at any point leaves nothing half done: the next one continues. One sink
    object serves one query.

    ``format``: "parquet", "json" (lines) or "csv". ``partition_by``: columns that become directories. ``options``: for
    Spark's writer of this format. ``work_dir``: directory of the invisible files and the commit log, on the file system
    of ``path``; by default ``_emberkeep-<name>`` beside ``path``, so that not even a recursive glob below ``path``
    finds them. ``adopt``: id of the query that wrote this output before, if another query continues it.
    """

    def __init__(
        self,
        path: str,
        format: str = "parquet",  # noqa: A002 - Spark's word
        *,
        partition_by: Sequence[str] | str = (),
        max_bytes: int = 128 * _MIB,
        max_rows: int | None = None,
        max_age: float | timedelta | None = 600.0,
        options: Mapping[str, Any] | None = None,
        work_dir: str | None = None,
        adopt: str = "",
    ) -> None:
        """Check the arguments, which the class describes. Raises InvalidInput."""
        self.path = str(path)
        self._form = _form(format)
        self._partition_by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self._limits = _limits(max_bytes, max_rows, max_age)
        self._options = {name: _text(value) for name, value in (options or {}).items()}
        self._work_dir = work_dir
        self._adopt = adopt
        self._lock = threading.RLock()
        self._writer: PartWriter | None = None
        self._frames: SparkFrames | None = None
        self._watch: AgeWatch | None = None
        self._restored: tuple[str, int] | None = None
        self._place = ""  # its work directory, once it has taken the output over

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Write a micro-batch. While the output's file system is unavailable, wait without limit, and say so on stderr.

        Raises SinkFenced, OutputOfAnotherQuery, OutputIsAhead, BatchesMissing, SinkClosed, RetryLater.
        """
        waits = False
        while (obstacle := self._write(frame, batch_id)) is not None:
            if not waits:
                say(f"emberkeep: batch {batch_id} waits for its output: {obstacle}")
            waits = True
            time.sleep(_PAUSE_SECONDS)

    def _write(self, frame: Any, batch_id: int) -> OutputUnavailable | None:
        """Write a micro-batch and return None, or return why its output is unavailable."""
        with self._lock:
            if self._life == "closed":
                raise SinkClosed(f"the sink of {self.path} was closed", hint="create a new sink for another query")
            writer = self._opened(frame.sparkSession)
            assert self._frames is not None, "it was made with the writer"  # noqa: S101
            arrival = self._frames.arrival(frame, int(batch_id))
            try:
                writer.write_batch(arrival, frame)
            except OutputUnavailable as error:
                return error
            return None

    # --- the lifecycle of a function ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the output over, so that rows that are old enough appear even if no batch arrives.

        Without a SparkContext, the first batch takes it over. Raises SinkFenced, BatchesMissing, RetryLater.
        """
        with self._lock:
            self._opened_if_used()

    def query_started(self, query: str, checkpoint: str) -> None:
        """See FollowsQueries."""
        if self._writer is not None:
            self._writer.continues(query, checkpoint)

    def prepare_to_shutdown(self) -> None:
        """Put all waiting rows of committed batches into complete part files, which are not visible yet."""
        with self._lock:
            writer = self._opened_if_used()
            if writer is not None:
                writer.close_parts()

    def snapshot_state(self) -> dict[str, Any] | None:
        """Return the query and the newest committed batch of the output; None for a sink that was never used.

        The waiting rows stay in the work directory, which outlives every attempt.
        """
        with self._lock:
            writer = self._opened_if_used()
            if writer is None:
                return None
            query, batch = writer.committed()
            return {"version": _STATE_VERSION, "path": self.path, "query": query, "batch": batch}

    def initialize_state(self, state: Any) -> None:
        if state.get("version") != _STATE_VERSION:
            raise InvalidInput(f"the savepoint holds state of a sink in version {state.get('version')}, not 1")
        self._restored = (str(state["query"]), int(state["batch"])) if state["path"] == self.path else None

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Make visible the part files that were closed for this savepoint."""
        del checkpoint_id
        with self._lock:
            writer = self._opened_if_used()
            if writer is not None:
                writer.publish()

    def shutdown(self) -> None:
        """Make closed part files visible, and delete files that are no longer needed."""
        with self._lock:
            writer = self._opened_if_used()
            if writer is not None:
                writer.publish()
                writer.clean_up()

    def close(self) -> None:
        """Refuse further batches. Does not wait for a batch that is being written, which may be why the job ends."""
        self._life = "closed"
        if self._watch is not None:
            self._watch.stop()

    # --- making the writer --------------------------------------------------------------------------------------------

    def _opened_if_used(self) -> PartWriter | None:
        """Return the writer, opening it if no batch has arrived yet; None without Spark, or once closed or replaced."""
        if self._life == "closed" or self._is_replaced():
            return None
        if self._writer is not None:
            return self._writer
        session = session_of_process()
        return None if session is None else self._opened(session)

    def _opened(self, session: Any) -> PartWriter:
        if self._writer is None:
            files, places = self._reach(session)
            local = isinstance(files, LocalFiles)
            self._frames = SparkFrames(
                session,
                self._form,
                self._partition_by,
                self._options,
                (lambda path: f"file:{path}") if local else (lambda path: path),
            )
            job = current_job()
            owner = SinkWriter(job_id=job.job_id, attempt=job.attempt, writer=secrets.token_hex(4))
            writer = PartWriter(
                files, self._frames, places, owner, self._form, self._limits, _now_ms, self._adopt, self._restored
            )
            self._check_restored(writer)
            self._writer, self._place = writer, places.work
            _replace(places.work, self)
            self._watch = AgeWatch(writer.next_age_ms, self._show, _spark_is_up)
            self._watch.start()
        return self._writer

    def _is_replaced(self) -> bool:
        """True if the script has made another sink for the same output, for example to try again."""
        return self._writer is not None and _NEWEST.get(self._place, self) is not self

    def _reach(self, session: Any) -> tuple[SinkFiles, SinkPlaces]:
        from py4j.protocol import Py4JError

        try:
            path = session._jvm.org.apache.hadoop.fs.Path(self.path)
            system = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
            full = system.makeQualified(path)
            local = full.toUri().getScheme() == "file"
            output = str(full.toUri().getPath() if local else full.toString())
        except Py4JError as error:
            raise RetryLater(f"cannot reach {self.path}: {error}", hint="check the path") from error
        work = self._work_dir
        if work is None:
            parent, name = output.rpartition("/")[::2]
            if not name or full.getParent() is None:
                raise InvalidInput(
                    f"{self.path} has no parent directory for the sink's work directory",
                    field="work_dir",
                    hint="set work_dir",
                )
            work = f"{parent}/_emberkeep-{name}"
        elif local:
            work = str(system.makeQualified(session._jvm.org.apache.hadoop.fs.Path(work)).toUri().getPath())
        files: SinkFiles = LocalFiles() if local else HadoopSinkFiles(session)
        return files, SinkPlaces(output=output, work=str(PurePosixPath(work)) if local else work.rstrip("/"))

    def _show(self) -> None:
        with self._lock:
            if self._writer is not None:
                self._writer.show_what_is_due()

    def _check_restored(self, writer: PartWriter) -> None:
        """Raise BatchesMissing if the savepoint covers batches that the output has lost."""
        query, batch = writer.newest()  # takes the output over
        known, wanted = self._restored or ("", NOTHING_YET)
        if query in ("", known) and batch < wanted:
            raise BatchesMissing(
                f"the savepoint was made after batch {wanted} of query {known} was written to {self.path}, but its "
                f"newest batch is {batch if query else 'none'}: rows are missing",
                hint="check whether the output or its work directory was removed or restored from an older copy",
            )


def _replace(place: str, sink: RollingFileSink) -> None:
    """Note which sink of this process has taken an output over last: the earlier one has nothing left to end."""
    before, _NEWEST[place] = _NEWEST.get(place), sink
    if before is not None and before is not sink and before._watch is not None:
        before._watch.stop()


def _form(name: str) -> FileFormat:
    try:
        return FileFormat(name.lower())
    except ValueError:
        known = ", ".join(form.value for form in FileFormat)
        raise InvalidInput(
            f"{name!r} is not a format of this sink", field="format", hint=f"known formats: {known}"
        ) from None


def _limits(max_bytes: int, max_rows: int | None, max_age: float | timedelta | None) -> Limits:
    seconds = max_age.total_seconds() if isinstance(max_age, timedelta) else max_age
    for field, value in (("max_bytes", max_bytes), ("max_rows", max_rows), ("max_age", seconds)):
        if value is not None and value <= 0:
            raise InvalidInput(f"{field} is {value}", field=field, hint="set a value greater than 0")
    return Limits(max_bytes=max_bytes, max_rows=max_rows, max_age_ms=None if seconds is None else int(seconds * 1000))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _spark_is_up() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None
