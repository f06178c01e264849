"""Deletes a savepoint: the files in its manifest, and no others in its directory.

The manifest gets another name before the first file is deleted. So a job that starts from the savepoint, perhaps under
another leader, finds all of it or no savepoint, and an interrupted disposal can be repeated.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import structlog

from emberkeep.base.errors import Absent, Conflict
from emberkeep.lifecycle.manifest import DELETING_NAME, MANIFEST_NAME, Manifest
from emberkeep.local_state.errors import Exists, NotEmpty
from emberkeep.local_state.model import FileKind
from emberkeep.local_state.ports import DurableState

_AT_ONCE = 8  # files that are deleted in parallel
MOST_NAMED = 10  # remaining files that are named
_MANIFESTS = (MANIFEST_NAME, DELETING_NAME)  # an earlier leader that has not ended may have withdrawn its disposal

log = structlog.get_logger(__name__)


def begin(store: DurableState, path: str, manifest: Manifest, step: Callable[[], None]) -> bool:
    """Take the savepoint at ``path`` away from all starts. Return False if an earlier disposal has done so.

    Nothing is deleted yet. ``step``: see ``dispose``, which raises the same.
    """

    def check(directory: str) -> None:
        step()
        _check_directory(store, path, directory)

    with ThreadPoolExecutor(_AT_ONCE, "savepoint-disposal") as threads:
        for directories in _by_depth(file.path for file in manifest.files):
            deque(threads.map(check, directories), maxlen=0)
    step()
    try:
        store.rename(MANIFEST_NAME, DELETING_NAME, overwrite=False)
    except (Absent, Exists):  # Exists: of an object store's rename, which has copied the manifest but not deleted it
        store.status(DELETING_NAME)
        store.delete(MANIFEST_NAME, recursive=False)
        return False
    return True


def withdraw(store: DurableState) -> None:
    """Undo ``begin``, which has returned True. Does nothing if the disposal has been completed since."""
    with contextlib.suppress(Absent, Exists):
        store.rename(DELETING_NAME, MANIFEST_NAME, overwrite=False)


def dispose(store: DurableState, path: str, manifest: Manifest, step: Callable[[], None]) -> tuple[str, ...]:
    """Delete the savepoint at ``path``.

    Files in its directory that are not part of the savepoint remain; return the names of up to MOST_NAMED of them.
    ``step`` is called before each deletion, and may raise to end the disposal. Blocks. Raises what ``step`` raises,
    Conflict if there are other savepoints below ``path`` whose files the manifest names, and RetryLater,
    UnknownOutcome, Fatal; after any of these, the disposal can be requested again.
    """
    files = [file.path for file in manifest.files]

    def delete(name: str) -> None:
        step()
        _delete(store, name)

    begin(store, path, manifest, step)
    with ThreadPoolExecutor(_AT_ONCE, "savepoint-disposal") as threads:
        deque(threads.map(delete, files), maxlen=0)
        for directories in _by_depth(files):
            deque(threads.map(delete, directories), maxlen=0)
    # Delete the manifest last: while it exists, an interrupted disposal can be repeated, and nothing without a manifest
    # is ever deleted.
    step()
    left = tuple(islice((_as_text(name) for name in _files(store, "") if name not in _MANIFESTS), MOST_NAMED))
    step()
    for name in _MANIFESTS:
        store.delete(name, recursive=False)
    _delete(store, "")
    log.info("a savepoint was deleted", path=path, job=manifest.job_id, files=len(files))
    if left:
        log.warning("files in a savepoint's directory that are not part of it are kept", path=path, files=left)
    return left


def _check_directory(store: DurableState, path: str, directory: str) -> None:
    """Raise Conflict if a directory of a savepoint is a savepoint itself: anybody may have written the manifest."""
    for name in _MANIFESTS:
        with contextlib.suppress(Absent):
            store.status(f"{directory}/{name}")
            raise Conflict(
                f"the manifest at {path} names files of another savepoint, {_as_text(directory)}",
                hint="nothing was deleted: check who has written that manifest",
            )


def _delete(store: DurableState, name: str) -> None:
    """Delete a file or an empty directory. Ignore missing files and directories with entries."""
    with contextlib.suppress(NotEmpty):
        store.delete(name, recursive=False)


def _as_text(name: str) -> str:
    """Return a name with bytes that are not UTF-8 as escapes, because no reply can contain them."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _by_depth(files: Iterable[str]) -> list[list[str]]:
    """Return the directories of these files, the deepest first."""
    found: dict[int, set[str]] = {}
    for file in files:
        parts = file.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            found.setdefault(depth, set()).add("/".join(parts[:depth]))
    return [sorted(found[depth]) for depth in sorted(found, reverse=True)]


def _files(store: DurableState, directory: str) -> Iterator[str]:
    try:
        entries = store.listing(directory)
    except Absent:
        return
    for entry in entries:
        if entry.kind is FileKind.FILE:
            yield entry.name
        else:
            yield from _files(store, entry.name)
