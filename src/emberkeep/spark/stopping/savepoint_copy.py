"""Write a savepoint: copies of the files that each query's last committed batch needs, then the manifest.

Each checksum covers the bytes as they were copied. Queries may run during the copy, within the bounds of ``plan_gate``:
what the copied batch needs stays. Other listed files may disappear, such as the entries of a source's log that Spark
compacts; in that case the files are listed again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from emberkeep.base.errors import Absent, RetryLater
from emberkeep.lifecycle.manifest import (
    MANIFEST_NAME,
    FunctionState,
    Manifest,
    QuerySavepoint,
    SavepointFile,
    encode_manifest,
    function_file,
    manifest_sha256,
    query_directory,
)
from emberkeep.spark.files.hadoop import HadoopFiles
from emberkeep.spark.queries import checkpoint_logs as logs
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping.drain import before_drain, log_state
from emberkeep.spark.stopping.many_files import work_through
from emberkeep.spark.stopping.savepoint_files import needed_files, referenced_files, snapshots_with_references
from emberkeep.spark.stopping.savepoint_storage import SavepointStorage

_TRIES = 3  # a running query may remove files after they were listed


@dataclass(frozen=True)
class CopyProgress:
    """Numbers of files and bytes copied so far, and in total."""

    files: int
    files_total: int
    bytes: int
    bytes_total: int


Watch = Callable[[CopyProgress], None]


@dataclass(frozen=True)
class Written:
    """A complete savepoint."""

    path: str
    manifest_sha256: str


class SavepointWriter:
    """Writer of one savepoint at ``location`` in ``storage``.

    ``files``: reads the checkpoints through Hadoop, in the job's session. ``may_commit``: returns once this attempt may
    write. It is called before each file, because a node may freeze at any file and resume after another attempt has
    taken over.
    """

    def __init__(
        self, files: HadoopFiles, location: str, storage: SavepointStorage, may_commit: Callable[[], None]
    ) -> None:
        self._files = files
        self._location = location
        self._storage = storage
        self._may_commit = may_commit

    def discard(self) -> None:
        """Remove everything at the savepoint's location."""
        self._may_commit()
        self._storage.remove()

    def write(
        self,
        heading: Manifest,
        queries: Sequence[ScriptQuery],
        batches: Mapping[str, int],
        functions: Mapping[str, bytes],
        watch: Watch,
    ) -> Written:
        """Write the savepoint, replacing what is at its location.

        ``heading``: the manifest without queries, files and functions. ``batches``: by query key, the batch to which
        the states in ``functions`` belong; for a query without an entry, the last committed batch is copied.

        Raises RetryLater or Absent (Spark removes files faster than they are copied), Fatal.
        """
        self.discard()
        parts = [self._part(query, batches.get(query.key)) for query in queries]
        total = sum(size for part in parts for _, size in part.sources)
        count = sum(len(part.sources) for part in parts) + len(functions)
        done: list[SavepointFile] = []
        copied = 0

        def note(file: SavepointFile) -> None:
            nonlocal copied
            done.append(file)
            copied += file.size
            watch(CopyProgress(len(done), count, copied, total))

        for query, part in zip(queries, parts, strict=True):
            self._copy_part(query, part, note)
        states = []
        for number, (name, state) in enumerate(sorted(functions.items())):
            path = function_file(number)
            note(self._write(path, state))
            states.append(FunctionState(name=name, path=path))
        manifest = _complete(heading, [part.query for part in parts], done, states)
        self._storage.seal(file.path for file in done)
        data = encode_manifest(manifest)
        self._write(MANIFEST_NAME, data)
        return Written(self._location, manifest_sha256(data))

    def _save(self, source: str, name: str) -> SavepointFile:
        self._may_commit()
        return self._storage.save(source, name)

    def _write(self, name: str, data: bytes) -> SavepointFile:
        self._may_commit()
        return self._storage.write(name, data)

    def _part(self, query: ScriptQuery, batch: int | None) -> _Part:
        for _ in range(_TRIES - 1):
            try:
                return _part(self._files, query, batch)
            except (Absent, RetryLater):
                continue
        return _part(self._files, query, batch)

    def _copy_part(self, query: ScriptQuery, part: _Part, note: Callable[[SavepointFile], None]) -> None:
        target = query_directory(part.query.key)
        copied: set[str] = set()

        def done(file: SavepointFile) -> None:
            copied.add(file.path)
            note(file)

        for tries_left in reversed(range(_TRIES)):
            names = {f"{part.location}/{name}": f"{target}/{name}" for name, _ in sorted(part.sources, key=_size)}
            try:
                self._copy({source: name for source, name in names.items() if name not in copied}, done)
            except Absent:
                if not tries_left:
                    raise
                part = self._part(query, part.query.batch_id)  # list the files of the same batch again
            else:
                return

    def _copy(self, names: Mapping[str, str], note: Callable[[SavepointFile], None]) -> None:
        """Copy files, the smallest first. ``names``: the name in the savepoint, by source location."""
        self._storage.prepare(names.values())
        work_through(names.items(), lambda names: self._save(*names), note)


@dataclass(frozen=True)
class _Part:
    """One query's part of a savepoint: its entry in the manifest, and the files to copy as (name, size in bytes)."""

    query: QuerySavepoint
    location: str
    sources: tuple[tuple[str, int], ...]


def _size(source: tuple[str, int]) -> int:
    return source[1]


def _part(files: HadoopFiles, query: ScriptQuery, pinned: int | None) -> _Part:
    assert query.reached is not None and query.started.location is not None  # noqa: S101, PT018
    location = query.reached.rstrip("/")
    state = log_state(files, location)
    batch = state.committed if pinned is None else pinned
    offsets = files.read_text(f"{location}/offsets/{batch}") if batch >= 0 else ""
    drained = batch >= 0 and logs.is_drain(offsets)
    first = before_drain(files, location, state) if drained else batch
    commit = files.read_text(f"{location}/commits/{first}") if first >= 0 else ""
    described = QuerySavepoint(
        key=query.key,
        name=query.name,
        query_id=str(json.loads(files.read_text(f"{location}/metadata"))["id"]),
        sink=query.identity.sink,
        output_mode=query.identity.output_mode,
        target=query.identity.target,
        location=query.started.location,
        batch_id=batch,
        offsets=logs.offset_texts(offsets) if offsets else (),
        watermark_ms=logs.next_watermark(commit) if commit else 0,
        drained_from=first if drained else -1,
    )
    sizes = {found.name: found.size for found in files.below(location)}
    needed = needed_files(sizes, batch, first)
    for snapshot in snapshots_with_references(needed):
        needed += referenced_files(snapshot, files.read_zip_entry(f"{location}/{snapshot}", "metadata"))
    missing = [name for name in needed if name not in sizes]
    if missing:
        raise RetryLater(f"{location}/{missing[0]} is needed but does not exist")
    return _Part(described, location, tuple((name, sizes[name]) for name in dict.fromkeys(needed)))


def _complete(
    heading: Manifest, queries: list[QuerySavepoint], files: list[SavepointFile], functions: list[FunctionState]
) -> Manifest:
    return msgspec.structs.replace(
        heading,
        queries=tuple(queries),
        files=tuple(sorted(files, key=lambda file: file.path)),
        functions=tuple(functions),
    )
