"""A driver's own look at the shared storage: is the directory of all jobs' checkpoints there on this node?"""

from __future__ import annotations

from pathlib import Path

from emberkeep.adapters.shared_storage.checkpoint_place import require_checkpoint_place
from emberkeep.adapters.state.directory_tree import FirstStart
from emberkeep.adapters.state.durable_store import open_state_store
from emberkeep.base.errors import InvalidInput
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.local_state.gateway_paths import durable_location
from emberkeep.local_state.ports import DurableState


def require_checkpoints(spec: DriverSpec) -> None:
    """Before the script runs. Raises Unavailable where an earlier attempt has committed to a default checkpoint, and
    not even the directory of all jobs' checkpoints is seen here.

    A checkpoint that alone is missing is no such case: its query waits for it, and says so.
    """
    own = f"{spec.checkpoint_root}/"
    if any(query.location.startswith(own) for query in spec.checkpoints):
        require_own_place(spec)


def require_own_place(spec: DriverSpec) -> None:
    """Before anything is read or made below the job's own root. Raises Unavailable where the storage is away: what is
    not found there may well have been kept, and what was made would be hidden."""
    place = Path(spec.checkpoint_root).parent
    require_checkpoint_place(place, spec.host, is_recorded=spec.checkpoints_recorded)


def open_state_of(spec: DriverSpec, location: str) -> DurableState:
    """The durable store of one of the job's roots. This process makes those that no earlier attempt has made.

    Raises Unavailable, Fatal.
    """
    is_own = location == durable_location(spec.checkpoint_root)
    if is_own:
        require_own_place(spec)
    if any(f"{_durable(query.location)}/".startswith(f"{location}/") for query in spec.checkpoints):
        return open_state_store(location, first_start=FirstStart.ELSEWHERE)
    return open_state_store(location, first_start=FirstStart.IN_PLACE if is_own else FirstStart.ANYWHERE)


def _durable(location: str) -> str:
    """Empty for what no gateway serves."""
    try:
        return durable_location(location)
    except InvalidInput:
        return ""
