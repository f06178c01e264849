"""Open the durable store of state files at a location: a directory or an object store."""

from __future__ import annotations

from collections.abc import Callable

from emberkeep.adapters.object_store.location import directory_at, without_obstore
from emberkeep.adapters.state.directories.store import DirectoryState
from emberkeep.adapters.state.directories.tree import FirstStart
from emberkeep.local_state.ports import DurableState


def open_state_store(
    location: str, *, first_start: FirstStart = FirstStart.ANYWHERE, admit: Callable[[str], None] | None = None
) -> DurableState:
    """Return the store at ``location``, without contacting it.

    ``location`` is a path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix.
    ``first_start`` says who creates a missing directory. ``admit`` raises to refuse the real path of a directory
    whenever it is opened, or the location of an object store. Raises Fatal if the kind of store is unknown or needs a
    package that is not installed.
    """
    directory = directory_at(location, "store of checkpoints")
    if directory is not None:
        return DirectoryState(directory, first_start=first_start, admit=admit)
    if admit is not None:
        admit(location)
    try:
        from emberkeep.adapters.state.objects import ObjectState
    except ModuleNotFoundError as error:
        raise without_obstore(error, f"a checkpoint at {location.partition('://')[0].lower()}://") from None
    return ObjectState(location)
