"""Job graphs as durable files, and the small handles that lead to them.

A graph may be many MB, its handle is not: it says where the file lies and which bytes it must hold. What cannot be read
is never deleted; whoever wants to know why finds it where the problem says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec
import structlog

from emberkeep.base.compatible import Compatible
from emberkeep.base.durable import decode_record, encode_record, write_file
from emberkeep.base.errors import Fatal, NewerFormat
from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobGraph

GRAPH_KIND, GRAPH_VERSION = "job-graph", 1
HANDLE_KIND, HANDLE_VERSION = "job-handle", 1
_SUFFIX = ".graph"

_log = structlog.get_logger(__name__)


class StateHandle(Compatible, frozen=True, kw_only=True):
    """Where a job graph lies and which bytes it holds. Persisted (kind "job-handle", version 1)."""

    location: str  # file name in the store's directory of graphs
    size: int  # bytes of the file
    sha256: str  # of the file
    graph_version: int


def encode_handle(handle: StateHandle) -> bytes:
    return encode_record(HANDLE_KIND, HANDLE_VERSION, msgspec.json.encode(handle))


def decode_handle(data: bytes, *, where: str) -> StateHandle:
    """Raises Fatal naming ``where``."""
    try:
        return msgspec.json.decode(decode_record(data, HANDLE_KIND, HANDLE_VERSION, where=where), type=StateHandle)
    except msgspec.DecodeError as error:
        raise Fatal(f"{where}: {error}") from None


class GraphFiles:
    """A directory of graphs that belongs to one store alone. All methods block.

    Where several leaders follow each other, each writes names of its own ``epoch``: so whoever leads no more neither
    overwrites what its successor has written nor takes it for an orphan.
    """

    def __init__(self, directory: Path, epoch: int | None = None) -> None:
        self._directory = directory
        self._epoch = epoch

    def write(self, graph: JobGraph) -> StateHandle:
        """Write a graph durably. Raises Fatal (no space, …); nothing is left then."""
        data = encode_record(GRAPH_KIND, GRAPH_VERSION, msgspec.json.encode(graph))
        path = self._path(graph.job_id)
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise Fatal(f"cannot make {self._directory}: {error.strerror}", hint="check its permissions") from error
        write_file(path, data)
        return StateHandle(
            location=path.name, size=len(data), sha256=hashlib.sha256(data).hexdigest(), graph_version=GRAPH_VERSION
        )

    def read(self, job_id: JobId, handle: StateHandle) -> JobGraph:
        """Raises Fatal saying where the graph lies and what is wrong with it; NewerFormat."""
        if "/" in handle.location or not handle.location.startswith(f"{job_id}."):
            raise Fatal(f"the handle of job {job_id} names {handle.location!r}, which is no graph of this store")
        path = self._directory / handle.location
        if handle.graph_version > GRAPH_VERSION:
            raise NewerFormat(
                f"{path}: {GRAPH_KIND} version {handle.graph_version} was written by a newer release",
                hint=f"this release reads up to version {GRAPH_VERSION}: start the newer release again",
            )
        try:
            data = path.read_bytes()
        except OSError as error:
            raise Fatal(f"{path}: cannot be read: {error.strerror}") from None
        if len(data) != handle.size:
            raise Fatal(f"{path}: has {len(data)} bytes, not the {handle.size} that were written")
        if hashlib.sha256(data).hexdigest() != handle.sha256:
            raise Fatal(f"{path}: damaged (its SHA-256 is not that of what was written)")
        graph = _decode(data, path)
        if graph.job_id != job_id:
            raise Fatal(f"{path}: holds the graph of job {graph.job_id}, not of {job_id}")
        return graph

    def discard(self, job_id: JobId) -> None:
        """Delete the graph of a job without a handle, unless it is damaged. What stays by an error goes at a sweep."""
        self.discard_file(self._path(job_id).name)

    def discard_file(self, location: str) -> None:
        """The same by the handle's location."""
        path = self._directory / location
        try:
            _decode(path.read_bytes(), path)
            path.unlink()
        except FileNotFoundError:
            return
        except (OSError, Fatal) as error:
            _log.warning("job_graph_kept", path=str(path), reason=str(error))

    def sweep(self, needed: AbstractSet[str]) -> None:
        """Delete graphs that have no handle (ids of those that have one: ``needed``), and unfinished files."""
        for temporary in self._directory.glob(".*.tmp"):
            temporary.unlink(missing_ok=True)
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            if path.name.removesuffix(_SUFFIX) not in needed:
                self.discard(JobId(path.name.removesuffix(_SUFFIX)))

    def sweep_older(self, needed: AbstractSet[str]) -> None:
        """Delete graphs of earlier epochs that no handle leads to (locations of the others: ``needed``)."""
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            epoch = path.name.removesuffix(_SUFFIX).partition(".")[2]
            if epoch.isdecimal() and self._epoch is not None and int(epoch) < self._epoch and path.name not in needed:
                self.discard_file(path.name)

    def _path(self, job_id: JobId) -> Path:
        epoch = "" if self._epoch is None else f".{self._epoch}"
        return self._directory / f"{job_id}{epoch}{_SUFFIX}"


def _decode(data: bytes, path: Path) -> JobGraph:
    try:
        return msgspec.json.decode(decode_record(data, GRAPH_KIND, GRAPH_VERSION, where=str(path)), type=JobGraph)
    except msgspec.DecodeError as error:
        raise Fatal(f"{path}: {error}") from None
