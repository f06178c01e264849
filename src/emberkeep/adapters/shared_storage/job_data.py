"""Lists and removes what jobs have in the storage. ``cluster`` has the ownership record, which says who may delete."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterable, Set
from pathlib import Path
from typing import Protocol

from emberkeep.adapters.shared_storage.event_logs import EVENT_LOGS
from emberkeep.adapters.shared_storage.progress_files import PROGRESS
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.blobs import BLOB_HA_STORAGE
from emberkeep.base.configuration.options.high_availability import HA_TYPE
from emberkeep.base.errors import EmberkeepError, InvalidInput, Unavailable
from emberkeep.base.files.errors import cannot_write, names_if_there
from emberkeep.base.files.hostile import remove_tree
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.jobs.leftovers import Item, Kind

_KEPT_LONGER = frozenset({EVENT_LOGS, PROGRESS})  # than checkpoints: what people look at after a job's end


class Ownership(Protocol):
    """The part of the ownership that this module uses. ``identity``: the job store's, "" if unknown."""

    @property
    def identity(self) -> str: ...

    def problem(self) -> EmberkeepError | None:
        """Return why nothing may be deleted in the storage now, or None."""

    def require(self) -> None:
        """Raise an EmberkeepError if nothing may be deleted in the storage."""


class JobData:
    """Data of jobs in the storage. All methods block; any thread may call them, one at a time."""

    def __init__(self, layout: StateLayout, ownership: Ownership) -> None:
        self._layout = layout
        self._ownership = ownership

    def find(self) -> set[Item]:
        """Return all jobs' checkpoints, event logs and logs, BLOBs in this directory, and ``_foreign_graphs``.

        Raises Unavailable.
        """
        found = self._of_jobs(_jobs(names_if_there(self._layout.checkpoints)))
        found |= _logs_of(_jobs(names_if_there(self._layout.kept_logs)))
        if not self._layout.configuration[BLOB_HA_STORAGE]:
            found |= {(Kind.BLOBS, job_id) for job_id in _jobs(names_if_there(Path(self._layout.ha_blobs)))}
        return found | {(Kind.GRAPH, job_id) for path in self._foreign_graphs() for job_id in _jobs([path.name])}

    def everything(self) -> set[Item]:
        """Return what ``find`` does, and jobs that have only events: these claim no storage. Raises Unavailable."""
        return self.find() | _logs_of(_jobs(path.name for path in self._events()))

    def directories(self) -> set[Item]:
        """Return the jobs' checkpoints, event logs and logs, except those of jobs with a graph of another job store.

        Events count as logs. Raises Unavailable.
        """
        others = _jobs(path.name for path in self._foreign_graphs())
        checkpoints = _jobs(names_if_there(self._layout.checkpoints))
        logs = _jobs([*names_if_there(self._layout.kept_logs), *(path.name for path in self._events())])
        return self._of_jobs(checkpoints - others) | _logs_of(logs - others)

    def _events(self) -> list[Path]:
        """Return the directories with the events of jobs, of all job stores that this cluster has had."""
        return [
            lineage / name
            for lineage in self._lineages()
            for name in _names_in_folder(lineage)
            if _jobs([name]) == {name}
        ]

    def _lineages(self) -> list[Path]:
        """Return the directories with the events of one job store each."""
        root = self._layout.events
        return [root / name for name in names_if_there(root) if _is_folder(root / name)]

    def _of_jobs(self, job_ids: Iterable[JobId]) -> set[Item]:
        """Return what the directories of jobs hold.

        A directory that is empty or unreadable, or is none, counts as checkpoints.
        """
        found: set[Item] = set()
        for job_id in job_ids:
            directory = self._layout.checkpoints / job_id
            try:
                names = set(_names_in_folder(directory)) if _is_folder(directory) else set()
            except Unavailable:
                names = set()
            if names & _KEPT_LONGER:
                found.add((Kind.EVENT_LOGS, job_id))
            if not names or names - _KEPT_LONGER:
                found.add((Kind.CHECKPOINTS, job_id))
        return found

    def _foreign_graphs(self) -> list[Path]:
        """Return graphs that this job store does not sweep itself. Raises Unavailable.

        These are, with the embedded store, the graphs outside its own folder; with ZooKeeper, all graphs while the
        storage is not this job store's.
        """
        root = self._layout.graphs
        if self._layout.configuration[HA_TYPE] != "embedded":
            return [] if self._ownership.problem() is None else [root / name for name in names_if_there(root)]
        return [
            root / folder / name
            for folder in names_if_there(root)
            if folder != self._ownership.identity
            for name in _names_in_folder(root / folder)
        ]

    def remove(self, item: Item) -> None:
        """Remove a job's checkpoints, event logs or logs, or those of its graphs that belong to other job stores.

        Its events go with its logs, its progress with its event logs. The last of checkpoints and event logs takes the
        job's directory with it.

        Raises what ``require`` raises, and Unavailable.
        """
        kind, job_id = item
        self._ownership.require()
        if kind is Kind.LOGS:
            for directory in (self._layout.kept_logs, *self._lineages()):
                _remove_entry(directory / job_id)
            return
        if kind is Kind.CHECKPOINTS:
            _remove_all_but(self._layout.checkpoints / job_id, _KEPT_LONGER)
            return
        if kind is Kind.EVENT_LOGS:
            directory = self._layout.checkpoints / job_id
            if _is_folder(directory):
                for name in _KEPT_LONGER:
                    _remove_entry(directory / name)
                _remove_if_empty(directory)
            return
        for path in self._foreign_graphs():
            if _jobs([path.name]) == {job_id}:
                _remove_file(path)


def _names_in_folder(path: Path) -> list[str]:
    """Return the names in a directory as ``names_if_there`` does; none if ``path`` is a file.

    Listing first avoids a separate check for a directory, which can fail in its own way.
    """
    try:
        return names_if_there(path)
    except Unavailable as error:
        if isinstance(error.__cause__, NotADirectoryError):
            return []
        raise


def _logs_of(job_ids: Iterable[JobId]) -> set[Item]:
    return {(Kind.LOGS, job_id) for job_id in job_ids}


def _jobs(names: Iterable[str]) -> set[JobId]:
    """Return the job ids that names begin with, up to a dot. Ignore other names: foreign data must not be deleted."""
    found = set()
    for name in names:
        try:
            found.add(parse_job_id(name.partition(".")[0]))
        except InvalidInput:
            continue
    return found


def _is_folder(path: Path) -> bool:
    """True if ``path`` itself is a directory; False if it is missing or, for example, a link. Raises Unavailable.

    A job may have put a link there whose target cannot be examined, so no link is followed.
    """
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise cannot_write(path, error) from error


def _remove_entry(path: Path) -> None:
    """Remove a directory tree, a file, a link or a pipe. Raises Unavailable; the next call removes what remains."""
    if _is_folder(path):
        _remove_tree(path)
    else:
        _remove_file(path)


def _remove_tree(directory: Path) -> None:
    """Remove a directory tree. Raises Unavailable; the next call removes what remains.

    ``directory`` must be one: opening a pipe would wait for its writer.
    """
    try:
        shutil.rmtree(directory)
    except FileNotFoundError:
        return
    except (OSError, RecursionError) as error:
        remove_tree(directory)  # a job may have made it deeper than Python can go down
        if os.path.lexists(directory):
            raise cannot_write(directory, error if isinstance(error, OSError) else OSError(str(error))) from error


def _remove_all_but(directory: Path, kept: Set[str]) -> None:
    """Remove a directory tree, but not the entries ``kept``. Raises Unavailable; the next call removes what remains."""
    names = set(_names_in_folder(directory) if _is_folder(directory) else ())
    if not names & kept:
        _remove_entry(directory)
        return
    for name in names - kept:
        _remove_entry(directory / name)


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()


def _remove_file(path: Path) -> None:
    """Remove a file. Raises Unavailable."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
