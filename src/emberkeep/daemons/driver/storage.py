"""Checks, for a driver, that the shared storage with the directory of all jobs' checkpoints is present on this node."""

from __future__ import annotations

from pathlib import Path

from emberkeep.adapters.shared_storage.checkpoint_place import require_checkpoint_place
from emberkeep.adapters.state.directories.tree import FirstStart
from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.errors import InvalidInput
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.local_state.gateway_paths import durable_location
from emberkeep.local_state.ports import DurableState


def require_checkpoints(spec: DriverSpec) -> None:
    """Raise Unavailable if earlier checkpoints exist but the directory of all jobs' checkpoints is missing here.

    Call before the script runs. Only default checkpoints count, and only if an earlier attempt has committed to them.
    If only a single checkpoint is missing, nothing is raised: its query waits for the checkpoint and reports that.
    """
    own = f"{spec.checkpoint_root}/"
    if any(query.location.startswith(own) for query in spec.checkpoints):
        require_own_place(spec)


def require_own_place(spec: DriverSpec) -> None:
    """Raise Unavailable if the storage is missing here. Call before reading or writing below the job's own root.

    Without the storage, existing files look absent, and new files would be hidden once it is mounted again.
    """
    place = Path(spec.checkpoint_root).parent
    require_checkpoint_place(place, spec.host, is_recorded=spec.checkpoints_recorded)


def open_state_of(spec: DriverSpec, location: str) -> DurableState:
    """Return the durable store of one of the job's roots. The store creates the root unless an earlier attempt did.

    Raises Unavailable, Fatal.
    """
    is_own = location == durable_location(spec.checkpoint_root)
    if is_own:
        require_own_place(spec)
    if any(f"{_durable(query.location)}/".startswith(f"{location}/") for query in spec.checkpoints):
        return open_state_store(location, first_start=FirstStart.ELSEWHERE)
    return open_state_store(location, first_start=FirstStart.IN_PLACE if is_own else FirstStart.ANYWHERE)


def _durable(location: str) -> str:
    """Return the durable location, or "" for a location that no gateway serves."""
    try:
        return durable_location(location)
    except InvalidInput:
        return ""
