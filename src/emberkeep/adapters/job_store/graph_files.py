"""Job graphs as durable files, and the small handles that lead to them.

A graph can be many MB in size. Its handle is small: it names the file, its size and its SHA-256. A damaged graph is
kept for inspection, and the error names its path; only ``remove_job`` deletes it. A missing file is unavailable, not
damaged, since its mount may be missing too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec
import structlog

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, Damaged, Fatal, NewerFormat, Unavailable
from emberkeep.base.files.durable import decode_record, encode_record
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobGraph

GRAPH_KIND, GRAPH_VERSION = "job-graph", 1
HANDLE_KIND, HANDLE_VERSION = "job-handle", 1
_SUFFIX = ".graph"
_ALONE = re.compile(r"[0-9a-f]{32}\.graph")
_OF_EPOCH = re.compile(r"[0-9a-f]{32}\.([0-9]{1,18})\.graph")
_UNFINISHED_OF_EPOCH = re.compile(rf"\.{_OF_EPOCH.pattern}\.[0-9a-f]{{12}}\.tmp")

_log = structlog.get_logger(__name__)


class StateHandle(Compatible, frozen=True, kw_only=True):
    """Names the file of a job graph and what it must contain. Persisted (kind "job-handle", version 1)."""

    location: str  # file name in the store's directory of graphs
    size: int  # bytes of the file
    sha256: str  # of the file
    graph_version: int


def encode_handle(handle: StateHandle) -> bytes:
    return encode_record(HANDLE_KIND, HANDLE_VERSION, msgspec.json.encode(handle))


def decode_handle(data: bytes, *, where: str) -> StateHandle:
    """Return the handle in a record. Raises Damaged, NewerFormat or Fatal, naming ``where``."""
    try:
        return from_json(decode_record(data, HANDLE_KIND, HANDLE_VERSION, where=where), StateHandle)
    except msgspec.DecodeError as error:
        raise Damaged(f"{where}: {error}") from None


class GraphFiles:
    """A directory of graphs that belongs to one store alone. All methods block.

    File names contain the writer's ``epoch``, unless that is None. So a former leader neither overwrites its
    successor's files nor treats them as orphans.
    """

    def __init__(self, directory: Path, epoch: int | None = None, *, patience: FilePatience | None = None) -> None:
        self._directory = directory
        self._epoch = epoch
        self._patience = patience or FilePatience()
        self._unsound: set[str] = set()  # damaged files that ``discard_file`` has kept for inspection

    def write(self, graph: JobGraph) -> StateHandle:
        """Write a graph durably and return its handle.

        Raises Fatal (no space, …) or Unavailable. No file remains then, unless the file system has stopped answering:
        in that case a graph without a handle may remain.
        """
        data = encode_record(GRAPH_KIND, GRAPH_VERSION, msgspec.json.encode(graph))
        path = self._path(graph.job_id)
        self._patience.write(path, data)
        return StateHandle(
            location=path.name, size=len(data), sha256=hashlib.sha256(data).hexdigest(), graph_version=GRAPH_VERSION
        )

    def read(self, job_id: JobId, handle: StateHandle) -> JobGraph:
        """Return a job's graph, checked against its handle.

        Raises Unavailable, Damaged or NewerFormat, naming the file and what is wrong with it.
        """
        if "/" in handle.location or not handle.location.startswith(f"{job_id}."):
            raise Damaged(f"the handle of job {job_id} names {handle.location!r}, which is not a graph of this store")
        path = self._directory / handle.location
        if handle.graph_version > GRAPH_VERSION:
            raise NewerFormat(
                f"{path}: {GRAPH_KIND} version {handle.graph_version} was written by a newer release",
                hint=f"this release reads up to version {GRAPH_VERSION}: start the newer release again",
            )
        data = self._bytes(path)
        if len(data) != handle.size:
            raise Damaged(f"{path}: has {len(data)} bytes, not the {handle.size} that were written")
        if hashlib.sha256(data).hexdigest() != handle.sha256:
            raise Damaged(f"{path}: damaged (its SHA-256 differs from what was written)")
        graph = _decode(data, path)
        if graph.job_id != job_id:
            raise Damaged(f"{path}: holds the graph of job {graph.job_id}, not of {job_id}")
        return graph

    def _bytes(self, path: Path) -> bytes:
        """Return the bytes of a graph's file. Raises Unavailable if it cannot be read or does not exist."""
        try:
            return self._patience.read(path)
        except Absent as error:
            raise Unavailable(error.message, hint="restore it from a copy of the storage, or cancel the job") from None

    def discard(self, job_id: JobId) -> None:
        """Delete the graph of a job without a handle, unless it is damaged.

        Log errors instead of raising them: ``without_handle`` finds a file that remains after an error.
        """
        self.discard_file(self._path(job_id).name)

    def discard_file(self, location: str) -> None:
        """Delete a graph by the location in its handle, as ``discard`` does."""
        path = self._directory / location
        try:
            self._patience.run(path, lambda: _remove_sound(path))
        except FileNotFoundError:
            return
        except (OSError, Fatal, Unavailable) as error:
            _log.warning("job_graph_kept", path=str(path), reason=str(error))
            if isinstance(error, Fatal):
                self._unsound.add(location)

    def of_job(self, job_id: JobId) -> list[str]:
        """Return the paths of a job's graphs, damaged or not; empty if the directory cannot be read now."""
        return [str(self._directory / name) for name in self._names() if _is_of_job(name, job_id)]

    def remove_job(self, job_id: JobId) -> None:
        """Delete all graphs of a job, damaged ones too. Raises Unavailable; the next call deletes what remains."""

        def remove() -> None:
            try:
                for name in sorted(path.name for path in self._directory.iterdir()):
                    if _is_of_job(name, job_id):
                        (self._directory / name).unlink(missing_ok=True)
            except OSError as error:
                raise Unavailable(
                    f"{self._directory}: graphs of job {job_id} cannot be removed now: {error.strerror or error}",
                    hint="check that its file system is mounted and that this user may write to it",
                ) from error

        self._patience.run(self._directory, remove)

    def sweep_unfinished(self) -> None:
        """Delete files that were never finished; with an epoch, only those that leaders of earlier epochs left.

        Should one of these leaders still write, no handle will ever lead to its file, since its epoch has ended.
        """
        for name in self._names():
            if self._epoch is None:
                is_over = name.startswith(".") and name.endswith(".tmp")
            else:
                is_over = self._is_older(_UNFINISHED_OF_EPOCH.fullmatch(name))
            if is_over:
                self._remove_unfinished(name)

    def without_handle(self, with_handle: AbstractSet[str]) -> dict[JobId, list[str]]:
        """Return the names of graph files of jobs that are not in ``with_handle``, by job.

        With an epoch return only files of earlier leaders: a handle may soon lead to one of this epoch. Leave out files
        that ``discard_file`` has kept. Return nothing if the directory cannot be read now.
        """
        found: dict[JobId, list[str]] = {}
        for name in self._names():
            if self._epoch is None:
                is_graph = _ALONE.fullmatch(name) is not None
            else:
                is_graph = self._is_older(_OF_EPOCH.fullmatch(name))
            job_id = JobId(name.partition(".")[0])
            if is_graph and job_id not in with_handle and name not in self._unsound:
                found.setdefault(job_id, []).append(name)
        return found

    def _is_older(self, name: re.Match[str] | None) -> bool:
        return name is not None and self._epoch is not None and int(name.group(1)) < self._epoch

    def _names(self) -> list[str]:
        try:
            return self._patience.run(self._directory, lambda: sorted(path.name for path in self._directory.iterdir()))
        except FileNotFoundError:
            return []
        except (OSError, Unavailable) as error:
            _log.warning("job_graphs_not_swept", path=str(self._directory), reason=str(error))
            return []

    def _remove_unfinished(self, name: str) -> None:
        path = self._directory / name
        try:
            self._patience.run(path, lambda: path.unlink(missing_ok=True))
        except (OSError, Unavailable) as error:
            _log.warning("unfinished_job_graph_kept", path=str(path), reason=str(error))

    def _path(self, job_id: JobId) -> Path:
        epoch = "" if self._epoch is None else f".{self._epoch}"
        return self._directory / f"{job_id}{epoch}{_SUFFIX}"


def _is_of_job(name: str, job_id: JobId) -> bool:
    """True if ``name`` names a completely written graph of the job, from any epoch."""
    return name == f"{job_id}{_SUFFIX}" or (name.startswith(f"{job_id}.") and _OF_EPOCH.fullmatch(name) is not None)


def _decode(data: bytes, path: Path) -> JobGraph:
    try:
        return from_json(decode_record(data, GRAPH_KIND, GRAPH_VERSION, where=str(path)), JobGraph)
    except msgspec.DecodeError as error:
        raise Damaged(f"{path}: {error}") from None


def _remove_sound(path: Path) -> None:
    _decode(path.read_bytes(), path)
    path.unlink()
