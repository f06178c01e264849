"""The HA store that a location names: a directory, or an object store."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from emberkeep.adapters.directory_blobs import DirectoryBlobs
from emberkeep.base.errors import Fatal
from emberkeep.blobs.ports import BlobStorage

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_OBJECT_STORES = ("s3", "gs", "az")


def open_blob_storage(location: str) -> BlobStorage:
    """``location``: a path, file:///path, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix.

    Nothing is asked of the store yet. Raises Fatal (no such kind of store, or what it needs is not installed).
    """
    scheme = _SCHEME.match(location)
    if scheme is None:
        if not location:
            raise Fatal("no HA store is configured", hint="set blob.storage.ha-directory")
        return DirectoryBlobs(Path(location).absolute())
    kind = scheme.group(1).lower()
    if kind == "file":
        return DirectoryBlobs(_path_of(location))
    if kind not in _OBJECT_STORES:
        raise Fatal(
            f"{kind}:// is no kind of HA store that is known", hint="a directory, s3://, gs:// or az://bucket/prefix"
        )
    try:
        from emberkeep.adapters.object_blobs import ObjectBlobs
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("obstore"):
            raise
        raise Fatal(
            f"an HA store at {kind}:// needs obstore, which is not installed",
            hint="pip install 'emberkeep[object-store]'",
        ) from None
    return ObjectBlobs(location)


def _path_of(url: str) -> Path:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or parts.query or parts.fragment:
        raise Fatal(f"{url!r} is no path on this machine", hint="file:///path")
    return Path(path)
