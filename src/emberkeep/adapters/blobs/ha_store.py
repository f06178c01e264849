"""The HA store that a location names: a directory, or an object store."""

from __future__ import annotations

from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.object_store.location import directory_at, without_obstore
from emberkeep.base.errors import Fatal
from emberkeep.blobs.ports import BlobStorage


def open_blob_storage(location: str) -> BlobStorage:
    """``location``: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix.

    Nothing is asked of the store yet. Raises Fatal (no such kind of store, or what it needs is not installed).
    """
    if not location:
        raise Fatal("no HA store is configured", hint="set blob.storage.ha-directory")
    directory = directory_at(location, "HA store")
    if directory is not None:
        return DirectoryBlobs(directory)
    try:
        from emberkeep.adapters.blobs.objects import ObjectBlobs
    except ModuleNotFoundError as error:
        raise without_obstore(error, f"an HA store at {location.partition('://')[0].lower()}://") from None
    return ObjectBlobs(location)
