"""The JobManager's access to savepoints, in a directory or an object store, without Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from typing import TypeVar

from emberkeep.adapters.blocking.doubtful_work import DoubtfulWork, Pulse
from emberkeep.adapters.savepoints import disposal
from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.errors import Absent, Conflict, Fatal, InvalidInput, NewerFormat, Unavailable
from emberkeep.base.files.errors import is_bad_place
from emberkeep.jobs.checkpoints import SavepointPointer
from emberkeep.lifecycle.errors import SavepointDamaged
from emberkeep.lifecycle.locations import HADOOP_SCHEMES, place_key
from emberkeep.lifecycle.manifest import (
    DELETING_NAME,
    MANIFEST_NAME,
    Manifest,
    SavepointFile,
    decode_manifest,
    is_directory_for,
    manifest_sha256,
)
from emberkeep.lifecycle.spark_versions import judge
from emberkeep.local_state.ports import DurableState
from emberkeep.protocol.rest_savepoints import SavepointCheck

T = TypeVar("T")

_AT_ONCE, _AT_ONCE_IN_PLACE = 48, 16  # requests that use savepoints, each with a thread; those in one directory
_PATIENCE = 120.0
MOST_PROBLEMS = 100  # maximum number of problems that one check names
_LARGEST_MANIFEST = 256 * 1024**2  # bytes


class SavepointStore:
    """Implements ``rest.ports.Savepoints`` and ``jobs.periodic.ports.SavepointDisposal``.

    ``spark_version``: the version that jobs here run with. ``patience``: seconds for one step, such as a read.
    """

    def __init__(self, spark_version: str, *, patience: float = _PATIENCE) -> None:
        self._spark_version = spark_version
        self._work = DoubtfulWork(_AT_ONCE, patience=patience, per_key=_AT_ONCE_IN_PLACE)

    async def manifest(self, path: str) -> tuple[Manifest, str]:
        """Return the manifest and its SHA-256.

        Raises Absent, InvalidInput (no such location, damaged, or of a newer release), RetryLater.
        """
        return await self._read(path, lambda store, _: _manifest(store, path))

    async def verify(self, path: str, first: int = 0, count: int | None = None) -> SavepointCheck:
        """Verify files of the savepoint, see ``rest.ports.Savepoints``. Raises Absent, InvalidInput, RetryLater."""
        check = partial(_verify, path=path, first=first, count=count, spark_version=self._spark_version)
        return await self._read(path, check)

    async def begin_disposal(self, path: str) -> bool:
        """Take the savepoint away from all starts, see ``rest.ports.Savepoints``. Raises what ``dispose`` raises."""
        return await self._run(
            path, lambda store, pulse: disposal.begin(store, path, _any_manifest(store, path)[0], pulse.beat)
        )

    async def withdraw_disposal(self, path: str) -> None:
        """Undo ``begin_disposal``. Raises RetryLater, UnknownOutcome, Fatal."""
        await self._run(path, lambda store, _: disposal.withdraw(store))

    async def dispose(self, path: str) -> tuple[str, ...]:
        """Delete the savepoint, see ``rest.ports.Savepoints``.

        Raises Absent, InvalidInput (damaged, or of a newer release), RetryLater, UnknownOutcome, Fatal.
        """
        return await self._run(
            path, lambda store, pulse: disposal.dispose(store, path, _any_manifest(store, path)[0], pulse.beat)
        )

    async def delete(self, savepoint: SavepointPointer, sibling: SavepointPointer | None) -> None:
        """Delete a savepoint of which the record is known, see ``SavepointDisposal``.

        Raises Unavailable (nobody can tell whether it is gone), Conflict (another savepoint is there), and what
        ``dispose`` raises.
        """
        path = savepoint.path
        await self._work.run_steps(_place(path), path, lambda pulse: _delete(savepoint, sibling, pulse))

    async def _read(self, path: str, work: Callable[[DurableState, Pulse], T]) -> T:
        """Return the result of ``work``, which only reads: what this process may not read may be read later."""
        try:
            return await self._run(path, work)
        except Fatal as error:
            raise Unavailable(error.message, hint=error.hint) from error

    async def _run(self, path: str, work: Callable[[DurableState, Pulse], T]) -> T:
        """Return the result of ``work``. Raises Unavailable if the storage does not answer, and what ``work`` raises.

        If the caller is cancelled, as when this JobManager stops leading, the work ends at its next step.
        """
        return await self._work.run_steps(
            _place(path), path, lambda pulse: _with_store(path, lambda store: work(store, pulse))
        )


def _place(path: str) -> tuple[str, str, str]:
    """Return where the savepoint is: what hangs there must not keep savepoints elsewhere waiting."""
    return place_key(f"{path}/..")


def _delete(savepoint: SavepointPointer, sibling: SavepointPointer | None, pulse: Pulse) -> None:
    """Delete a savepoint that a driver has said to have made, with the rights of the JobManager.

    The driver may be anybody's code. So nothing is deleted but a directory with the name of a savepoint of the job's
    request, and only if the manifest in it was made for that request. An earlier release has recorded no request.
    """
    path, trigger_id = savepoint.path, savepoint.trigger_id

    def admit(place: str) -> None:
        if trigger_id and not is_directory_for(place, trigger_id):
            raise Fatal(
                f"{path} is not the directory of a savepoint for request {trigger_id}: it is {place}",
                hint="nothing was deleted",
            )

    def work(store: DurableState) -> None:
        manifest, sha256 = _any_manifest(store, path)
        if sha256 != savepoint.manifest_sha256 or (trigger_id and manifest.trigger_id != trigger_id):
            raise Conflict(
                f"{path} has another savepoint than the one that was made there",
                hint="nothing was deleted: move that savepoint away",
            )
        disposal.dispose(store, path, manifest, pulse.beat)

    try:
        _with_store(path, work, admit)
    except Absent:
        # An unmounted directory looks like an empty one.
        if sibling is None or not _is_there(sibling.path):
            raise Unavailable(
                f"nothing is found at {path}, and no other savepoint of the job is found beside it",
                hint="check that this JobManager can read that directory: its file system may not be mounted",
            ) from None


def _is_there(path: str) -> bool:
    try:
        _with_store(path, lambda store: _any_manifest(store, path))
    except Absent:
        return False
    return True


def _with_store(path: str, work: Callable[[DurableState], T], admit: Callable[[str], None] | None = None) -> T:
    """``admit``: see ``open_state_store``."""
    with closing(_open(path, admit)) as store:
        return work(store)


def _open(path: str, admit: Callable[[str], None] | None) -> DurableState:
    scheme, separator, rest = path.partition("://")
    if separator:
        path = f"{HADOOP_SCHEMES.get(scheme.lower(), scheme)}://{rest}"
    elif path.startswith("file:/"):  # Hadoop's form of a local path
        path = path.removeprefix("file:")
    try:
        return open_state_store(path, admit=admit)
    except Fatal as error:
        if admit is not None:
            raise
        raise InvalidInput(f"no savepoint can be read there: {error.message}", field="path", hint=error.hint) from error


def _manifest(store: DurableState, path: str) -> tuple[Manifest, str]:
    """Raises Absent if there is no savepoint, or one that is being deleted."""
    try:
        return _decoded(store, path, MANIFEST_NAME)
    except Absent as error:
        try:
            store.status(DELETING_NAME)
        except Absent:
            raise error from None
        raise Absent(
            f"the savepoint at {path} is being deleted, and files may be gone",
            hint="complete the deletion with `emberkeep savepoint dispose`",
        ) from None


def _any_manifest(store: DurableState, path: str) -> tuple[Manifest, str]:
    """Return the manifest of a savepoint, even if the savepoint is being deleted."""
    try:
        return _decoded(store, path, MANIFEST_NAME)
    except Absent:
        with suppress(Absent):
            return _decoded(store, path, DELETING_NAME)
        raise


def _decoded(store: DurableState, path: str, name: str) -> tuple[Manifest, str]:
    try:
        data = b"".join(store.read(name, 0, _LARGEST_MANIFEST)[1])
    except (Absent, Conflict):
        raise Absent(f"no savepoint exists at {path}: it has no {MANIFEST_NAME}") from None
    try:
        return decode_manifest(data, f"{path}/{name}"), manifest_sha256(data)
    except NewerFormat as error:
        raise InvalidInput(error.message, field="path", hint=error.hint) from error
    except SavepointDamaged as error:
        raise InvalidInput(f"the savepoint is damaged: {error.message}", field="path", hint=error.hint) from error


def _verify(
    store: DurableState, pulse: Pulse, *, path: str, first: int, count: int | None, spark_version: str
) -> SavepointCheck:
    try:
        manifest, _ = _manifest(store, path)
    except InvalidInput as error:
        return SavepointCheck(path=path, files=0, size=0, problems=[error.message])
    verdict = judge(manifest.spark_version, spark_version)
    problems = []
    files = manifest.files[first : None if count is None else first + count]
    for file in files:
        problem = _problem(store, file, pulse)
        if problem:
            problems.append(problem)
        if len(problems) >= MOST_PROBLEMS:
            problems.append("the remaining files were not checked")
            break
    return SavepointCheck(
        path=path,
        files=len(files),
        size=sum(file.size for file in files),
        problems=problems,
        warnings=[text for text in (verdict.refusal, verdict.warning) if text],
        manifest_files=len(manifest.files),
    )


def _problem(store: DurableState, file: SavepointFile, pulse: Pulse) -> str:
    """Return the defect of one file, or "" if size and SHA-256 match the manifest. Raises RetryLater, Fatal."""
    digest, size = hashlib.sha256(), 0
    try:
        for piece in store.read(file.path, 0, None)[1]:
            pulse.beat()
            digest.update(piece)
            size += len(piece)
    except Absent:
        return f"{file.path} is missing"
    except Conflict as error:
        return f"{file.path}: {error.message}"
    except Unavailable as error:
        if not is_bad_place(error):
            raise
        return f"{file.path}: {error.message}"
    if size != file.size:
        return f"{file.path} has {size} bytes; the manifest records {file.size}"
    if digest.hexdigest() != file.sha256:
        return f"{file.path} was changed: its SHA-256 differs from the manifest"
    return ""
