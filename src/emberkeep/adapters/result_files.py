"""Results that are too large for a ZooKeeper node (many attempts with long tracebacks), as durable files.

A node above the server's limit would not only be refused: ZooKeeper cuts the connection. As with graphs, each leader
writes names of its own epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec
import structlog

from emberkeep.base.compatible import Compatible
from emberkeep.base.durable import decode_record, encode_record, write_file
from emberkeep.base.errors import Fatal
from emberkeep.jobs.model import JobResult

INLINE_LIMIT = 64 * 1024  # bytes of JSON that a node holds itself
_KIND, _VERSION = "job-result-file", 1
_SUFFIX = ".result"

log = structlog.get_logger(__name__)


class ResultFile(Compatible, frozen=True, kw_only=True):
    """Where a result lies and which bytes it holds."""

    location: str  # file name in the store's directory of results
    size: int
    sha256: str


class ResultFiles:
    """A directory of one cluster. All methods block."""

    def __init__(self, directory: Path, epoch: int) -> None:
        self._directory = directory
        self._epoch = epoch

    def write(self, result: JobResult) -> ResultFile | None:
        """Write a large result; None: it is small enough for a node. Raises Fatal (no space, …)."""
        payload = msgspec.json.encode(result)
        if len(payload) <= INLINE_LIMIT:
            return None
        data = encode_record(_KIND, _VERSION, payload)
        path = self._directory / f"{result.job_id}.{self._epoch}{_SUFFIX}"
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise Fatal(f"cannot make {self._directory}: {error.strerror}", hint="check its permissions") from error
        write_file(path, data)
        return ResultFile(location=path.name, size=len(data), sha256=hashlib.sha256(data).hexdigest())

    def read(self, file: ResultFile) -> JobResult:
        """Raises Fatal saying where it lies and what is wrong with it."""
        path = self._directory / Path(file.location).name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise Fatal(f"{path}: cannot be read: {error.strerror}") from None
        if len(data) != file.size or hashlib.sha256(data).hexdigest() != file.sha256:
            raise Fatal(f"{path}: damaged (not the bytes that were written)")
        try:
            return msgspec.json.decode(decode_record(data, _KIND, _VERSION, where=str(path)), type=JobResult)
        except msgspec.DecodeError as error:
            raise Fatal(f"{path}: {error}") from None

    def discard(self, location: str) -> None:
        """Delete one; what stays by an error goes at a sweep."""
        try:
            (self._directory / Path(location).name).unlink(missing_ok=True)
        except OSError as error:
            log.warning("job_result_file_kept", file=location, reason=str(error))

    def sweep_older(self, needed: AbstractSet[str], unknown: AbstractSet[str]) -> None:
        """Delete those of earlier epochs that no node leads to (locations of the others: ``needed``; ``unknown``: jobs
        whose node cannot be read)."""
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            job_id, _, epoch = path.name.removesuffix(_SUFFIX).partition(".")
            if path.name in needed or job_id in unknown:
                continue
            if epoch.isdecimal() and int(epoch) < self._epoch:
                self.discard(path.name)
