"""Opens the HA store at a location: a directory or an object store."""

from __future__ import annotations

from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.object_store.location import directory_at, without_obstore
from emberkeep.base.errors import Fatal
from emberkeep.blobs.ports import BlobStorage


def open_blob_storage(location: str) -> BlobStorage:
    """Return the HA store at ``location``, without contacting it.

    ``location``: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix. Raises Fatal if
    the kind of store is unknown, or a package that it needs is not installed.
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
