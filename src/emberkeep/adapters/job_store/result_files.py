"""Durable files for results that are too large for a ZooKeeper node (many attempts with long tracebacks).

A node above the server's limit is not merely refused: ZooKeeper closes the connection. As with graphs, file names
contain the writer's epoch.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec
import structlog

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Damaged, Fatal, NewerFormat, Unavailable
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.base.files.kept_fields import encode_over
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobResult

INLINE_LIMIT = 64 * 1024  # bytes of JSON that a node holds itself
_KIND, _VERSION = "job-result-file", 1
_SUFFIX = ".result"
_FINISHED = re.compile(r"([0-9a-f]{32})\.([0-9]{1,18})\.result")
_UNFINISHED = re.compile(r"\.[0-9a-f]{32}\.([0-9]{1,18})\.result\.[0-9a-f]{12}\.tmp")
_OUTLINE_CAUSE = 1000  # characters of the root cause that a node keeps

log = structlog.get_logger(__name__)


class ResultFile(Compatible, frozen=True, kw_only=True):
    """Names the file of a result and what it must contain.

    ``outline``: the result without its large parts, used if the file cannot be read; None if an older release wrote it.
    """

    location: str  # file name in the store's directory of results
    size: int
    sha256: str
    outline: JobResult | None = None


def changed_file(file: ResultFile, data: bytes, change: Callable[[JobResult], JobResult]) -> tuple[ResultFile, bytes]:
    """Return the file of a changed result, and its bytes. ``data``: the present bytes.

    Raises NewerFormat, Damaged.
    """
    before = _decode(data, file.location)
    now = change(before)
    if now == before:
        return file, data
    data = encode_over(_KIND, _VERSION, now, data)
    return _named(file.location, data, now), data


def _decode(data: bytes, where: str) -> JobResult:
    try:
        return from_json(decode_record(data, _KIND, _VERSION, where=where), JobResult)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: {error}") from None


def _named(location: str, data: bytes, result: JobResult) -> ResultFile:
    digest = hashlib.sha256(data).hexdigest()
    return ResultFile(location=location, size=len(data), sha256=digest, outline=_outline(result))


class ResultFiles:
    """One cluster's directory of result files. All methods block."""

    def __init__(self, directory: Path, epoch: int, *, patience: FilePatience | None = None) -> None:
        self._directory = directory
        self._epoch = epoch
        self._patience = patience or FilePatience()

    def write(self, result: JobResult) -> ResultFile | None:
        """Write a result to a file durably; return None, writing nothing, if it is small enough for a node.

        Raises Fatal (no space, …), Unavailable.
        """
        payload = msgspec.json.encode(result)
        if len(payload) <= INLINE_LIMIT:
            return None
        data = encode_record(_KIND, _VERSION, payload)
        path = self._directory / f"{result.job_id}.{self._epoch}{_SUFFIX}"
        self._patience.write(path, data)
        return _named(path.name, data, result)

    def read(self, file: ResultFile) -> JobResult:
        """Return the result in a file.

        Raises Unavailable, Damaged, NewerFormat, or Fatal if the file does not exist; each names the path.
        """
        path = self._directory / Path(file.location).name
        data = self._bytes(path)
        if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
            raise Damaged(f"{path}: damaged (its bytes differ from what was written)")
        return _decode(data, str(path))

    def _bytes(self, path: Path) -> bytes:
        try:
            return self._patience.read(path)
        except Absent as error:
            raise Fatal(error.message, hint="restore it from a copy of the storage") from None

    def listed(self, file: ResultFile) -> JobResult:
        """Return the result, or its outline if the file cannot be read, so that the job remains known as ended.

        Raises NewerFormat, and what ``read`` raises if there is no outline.
        """
        try:
            return self.read(file)
        except NewerFormat:
            raise
        except (Unavailable, Fatal) as error:
            if file.outline is None:
                raise
            log.error(
                "cannot read a job's full result, showing its outline", job=file.outline.job_id, reason=str(error)
            )
            return file.outline

    def discard(self, location: str) -> None:
        """Delete a file. Log errors instead of raising them: ``without_node`` finds a file that remains."""
        path = self._directory / Path(location).name
        try:
            self._patience.run(path, lambda: path.unlink(missing_ok=True))
        except (OSError, Unavailable) as error:
            log.warning("job_result_file_kept", file=location, reason=str(error))

    def sweep_unfinished(self) -> None:
        """Delete files that leaders of earlier epochs did not finish. No node will ever lead to them."""
        for name in self._names():
            unfinished = _UNFINISHED.fullmatch(name)
            if unfinished is not None and int(unfinished.group(1)) < self._epoch:
                self.discard(name)

    def without_node(self, with_node: AbstractSet[str]) -> dict[JobId, list[str]]:
        """Return the names of files of earlier epochs whose jobs are not in ``with_node``, by job.

        Leave out files of this epoch: a node may soon lead to one. Return nothing if the directory cannot be read now.
        """
        found: dict[JobId, list[str]] = {}
        for name in self._names():
            finished = _FINISHED.fullmatch(name)
            if finished is not None and finished.group(1) not in with_node and int(finished.group(2)) < self._epoch:
                found.setdefault(JobId(finished.group(1)), []).append(name)
        return found

    def _names(self) -> list[str]:
        try:
            return self._patience.run(self._directory, lambda: sorted(path.name for path in self._directory.iterdir()))
        except FileNotFoundError:
            return []
        except (OSError, Unavailable) as error:
            log.warning("job_result_files_not_swept", path=str(self._directory), reason=str(error))
            return []


def _outline(result: JobResult) -> JobResult:
    cause = result.root_cause
    small = msgspec.structs.replace(
        result,
        root_cause=cause if len(cause) <= _OUTLINE_CAUSE else f"{cause[:_OUTLINE_CAUSE]} …",
        attempts=tuple(msgspec.structs.replace(attempt, outcome=None) for attempt in result.attempts[-1:]),
        exceptions=(),
        work=None,
    )
    if len(msgspec.json.encode(small)) <= INLINE_LIMIT:
        return small
    return msgspec.structs.replace(small, savepoints=())
