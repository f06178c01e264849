"""The private part of a configured storage for the cluster of one ``emberkeep run``.

That cluster has its own job store, which is removed with it, so it must not take another cluster's data for data of
jobs that have ended. Therefore it uses its own folder below the storage.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.cluster_identity import read_drawn_id
from emberkeep.base.configuration.options.blobs import BLOB_HA_STORAGE
from emberkeep.base.configuration.options.directories import STORAGE_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_TYPE
from emberkeep.base.configuration.places import OBJECT_STORES, directory_of, scheme_of
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.files.ownership import OWNER_FILE, read_owner

_FOLDER = "runs"
_SAVEPOINTS = "savepoints"


@dataclass(frozen=True)
class PrivateStorage:
    """The private storage of clusters that live for one ``emberkeep run``.

    ``configuration``: that of such a cluster, without the settings that ``definitions`` returns.
    """

    configuration: Configuration

    def definitions(self, name: str) -> Sequence[str]:
        """Return the ``-D`` settings that give the cluster ``name`` its private storage."""
        return [
            f"{HA_TYPE.key}=embedded",
            *([f"{STORAGE_DIRECTORY.key}={self._place(name)}"] if self._is_shared else []),
            *([f"{BLOB_HA_STORAGE.key}={self._blobs(name)}"] if self._blobs_apart else []),
        ]

    def remove(self, directory: Path) -> bool:
        """Remove the storage of the cluster with this private directory, once the cluster has ended.

        Savepoints stay, and so does the ownership record of BLOBs in an object store. Returns False if a storage is
        unavailable or something cannot be removed now.
        """
        try:
            drawn = read_drawn_id(directory)
        except EmberkeepError:
            return False
        if drawn is None:
            return True  # the cluster has never used any storage
        removed = [_remove(root, directory.name, drawn) for root in self._roots()]
        return all(removed)

    def _roots(self) -> list[Path]:
        """Directories that this cluster shares with others."""
        roots = [(STORAGE_DIRECTORY.key, self.configuration[STORAGE_DIRECTORY])]
        if scheme_of(self._blobs_apart) not in OBJECT_STORES:
            roots.append((BLOB_HA_STORAGE.key, self._blobs_apart))
        return [Path(directory_of(key, root)) for key, root in roots if root]

    @property
    def _blobs_apart(self) -> str:
        return self.configuration[BLOB_HA_STORAGE]

    def _blobs(self, name: str) -> str:
        return f"{self._blobs_apart.rstrip('/')}/{_FOLDER}/{name}"

    @property
    def _is_shared(self) -> bool:
        return bool(self.configuration[STORAGE_DIRECTORY])

    def _place(self, name: str) -> Path:
        key = STORAGE_DIRECTORY.key
        return Path(directory_of(key, self.configuration[STORAGE_DIRECTORY])) / _FOLDER / name


def _remove(root: Path, name: str, drawn: str) -> bool:
    """Remove this cluster's folder below ``root`` if the cluster owns it; see ``PrivateStorage.remove``."""
    place = root / _FOLDER / name
    try:
        if not place.exists():
            return any(root.iterdir())  # an empty root may be a mount point whose storage is not mounted
        owner = read_owner(place)
        if owner is not None and owner.cluster_id == drawn:
            _remove_all_but_savepoints(place)
    except (OSError, EmberkeepError):
        return False
    return True


def _remove_all_but_savepoints(place: Path) -> None:
    """Remove everything but savepoints from a folder; if there are none, the folder as well. Raises OSError.

    The ownership record goes last, so that an interrupted removal can be repeated.
    """
    for path in place.iterdir():
        if path.is_dir() and path.name != _SAVEPOINTS:
            shutil.rmtree(path)
    with contextlib.suppress(OSError):
        (place / _SAVEPOINTS).rmdir()  # succeeds only if it is empty
    if (place / _SAVEPOINTS).exists():
        return
    for path in place.iterdir():
        if path.name != OWNER_FILE:
            path.unlink()
    (place / OWNER_FILE).unlink()
    with contextlib.suppress(OSError):
        place.rmdir()
        place.parent.rmdir()  # fails if another cluster's folder is there
