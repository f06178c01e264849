"""Which files Spark reads when it loads a partition's state. Pure; names are those of ``spark_layout``.

A *full* file (``.snapshot``, ``.zip``) has all of a version, a *change* (``.delta``, ``.changelog``) what differs from
the version before. A query that starts again loads the version of the last micro-batch that was committed. That is the
newest one in the store, or the one before: the state of a micro-batch is stored before the batch is committed.

Beside each file Spark may have one with its checksum (``spark.sql.streaming.checkpoint.fileChecksum.enabled``).
"""

from __future__ import annotations

import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Iterable

from emberkeep.local_state.model import FileKind, FileStatus
from emberkeep.local_state.spark_layout import store_version

_FULL = (".snapshot", ".zip")
CHECKSUM = ".crc"  # ends the name of the file with the checksum of another one
_METADATA = "metadata"  # in the zip of a RocksDB version: a line with the format's version, then JSON
_METADATA_BYTES = 16 * 1024**2  # a larger one is no list of files
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError),
    *(KeyError, TypeError, AttributeError, ValueError, NotImplementedError, RuntimeError),
)
_SHARED = {"sstFiles": ("SSTs", "dfsSstFileName"), "logFiles": ("logs", "dfsLogFileName")}


def needed_files(entries: Iterable[FileStatus]) -> tuple[FileStatus, ...]:
    """Return the files from which the two newest versions of a state store are loaded, oldest version first.

    ``entries``: those of the store's directory.
    """
    versions = [
        (version, entry.name, entry)
        for entry in entries
        if entry.kind is FileKind.FILE and (version := store_version(entry.name.removesuffix(CHECKSUM))) > 0
    ]
    if not versions:
        return ()
    newest = max(version for version, _, _ in versions)
    full = [version for version, name, _ in versions if name.endswith(_FULL)]
    base = max((version for version in full if version < newest), default=0)
    return tuple(entry for version, _, entry in sorted(versions, key=lambda each: each[:2]) if version >= base)


def shared_files(content: bytes) -> tuple[str, ...]:
    """Return the files to which the zip of a RocksDB version refers, as names below the store's directory.

    Returns () for what is no such zip: Spark itself will say so when it loads it.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive, archive.open(_METADATA) as file:
            if archive.getinfo(_METADATA).file_size > _METADATA_BYTES:
                return ()
            _, _, text = file.read(_METADATA_BYTES).decode().partition("\n")
        found = json.loads(text)
        names = [
            f"{directory}/{each[field]}"
            for key, (directory, field) in _SHARED.items()
            for each in found.get(key, ())
            if isinstance(each[field], str) and "/" not in each[field]
        ]
    except _UNREADABLE:
        return ()
    return tuple(names)
