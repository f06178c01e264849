"""A driver's own look at the shared storage, before its script runs."""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.errors import Unavailable
from emberkeep.base.file_errors import is_directory
from emberkeep.daemons.driver_spec import DriverSpec


def require_checkpoints(spec: DriverSpec) -> None:
    """Raises Unavailable where an earlier attempt has committed to a default checkpoint, and not even the directory of
    all jobs' checkpoints is seen here: then the storage is away, and Spark would begin anew in its place.

    A checkpoint that alone is missing is no such case: its query starts, and says what is missing.
    """
    place = Path(spec.checkpoint_root).parent
    own = f"{spec.checkpoint_root}/"
    if any(query.location.startswith(own) for query in spec.checkpoints) and not is_directory(place):
        raise Unavailable(
            f"{place} is not there on {spec.host}, but earlier attempts have kept their checkpoints in it",
            hint="check that the shared storage is mounted; if it was emptied on purpose, make that directory",
        )
