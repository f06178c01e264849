"""Working directories of task managers for tests: with an owner, and not locked by any process."""

from __future__ import annotations

import hashlib
from pathlib import Path

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.files.ownership import OwnedPlaceKind, Owner
from emberkeep.daemons.taskmanager.working_place import WorkingPlace


def working_place(root: Path, task_manager: str = "tm", cluster: str = "c") -> WorkingPlace:
    """Return a working place, always the same one for the same path. Accesses no disk."""
    owner = Owner(
        cluster_id=cluster,
        kind=OwnedPlaceKind.WORKING_DIRECTORY,
        created_at_ms=1,
        holder=task_manager,
        place_id=hashlib.sha256(str(root).encode()).hexdigest()[:32],
    )
    return WorkingPlace(WorkingDirectory(root), owner)
