"""Opens the object store that a savepoint's location names."""

from __future__ import annotations

from emberkeep.adapters.object_store.location import is_object_store, without_obstore
from emberkeep.lifecycle.ports import SavepointObjects


def open_savepoint_objects(location: str) -> SavepointObjects | None:
    """Return the savepoint's files at ``location``, without contacting the store.

    ``location``: s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. Return None for any other location: a
    path, or a URI that Hadoop may know. Raises Fatal if the location is malformed, or obstore is not installed.
    """
    if not is_object_store(location):
        return None
    try:
        from emberkeep.adapters.savepoints.objects import StoredSavepoint
    except ModuleNotFoundError as error:
        raise without_obstore(error, f"a savepoint at {location.partition('://')[0].lower()}://") from None
    return StoredSavepoint(location)
