"""The JSON of WebHDFS replies, as Hadoop's client (``JsonUtilClient`` of Hadoop 3.5) reads it."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from emberkeep.local_state.gateway_ports import ContentSummary
from emberkeep.local_state.model import FileKind, FileStatus

BLOCK_BYTES = 128 * 1024**2  # the block size by which the client plans its reads; no file here has such blocks
_OWNER = "emberkeep"
_CRC32C = 2  # DataChecksum.Type; the client never asks for a checksum


def json_response(content: dict[str, Any], *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), status=status)


def file_status(status: FileStatus, suffix: str) -> dict[str, Any]:
    """Return the JSON of a file's status.

    ``suffix`` is the file's name in the requested directory, or "" if the request was for the file itself.
    """
    directory = status.kind is FileKind.DIRECTORY
    return {
        "accessTime": 0,
        "blockSize": 0 if directory else BLOCK_BYTES,
        "childrenNum": 0,
        "fileId": 0,
        "group": _OWNER,
        "length": status.length,
        "modificationTime": status.modified_ms,
        "owner": _OWNER,
        "pathSuffix": suffix,
        "permission": "700" if directory else "600",
        "replication": 0 if directory else 1,
        "storagePolicy": 0,
        "type": status.kind.value,
    }


def one_status(status: FileStatus) -> dict[str, Any]:
    return {"FileStatus": file_status(status, "")}


def statuses(entries: tuple[FileStatus, ...], name: str) -> dict[str, Any]:
    """Return the listing of the directory ``name``. If ``name`` is a file, the only entry is that file."""
    return {
        "FileStatuses": {
            "FileStatus": [
                file_status(entry, "" if entry.name == name else entry.name.rpartition("/")[2]) for entry in entries
            ]
        }
    }


def partial_listing(entries: tuple[FileStatus, ...], name: str) -> dict[str, Any]:
    """Return the whole listing as a LISTSTATUS_BATCH answer with one batch. ``name``: see statuses."""
    return {"DirectoryListing": {"partialListing": statuses(entries, name), "remainingEntries": 0}}


def content_summary(summary: ContentSummary) -> dict[str, Any]:
    return {
        "ContentSummary": {
            "directoryCount": summary.directories,
            "fileCount": summary.files,
            "length": summary.length,
            "quota": -1,
            "spaceConsumed": summary.length,
            "spaceQuota": -1,
            "typeQuota": {},
        }
    }


SERVER_DEFAULTS: dict[str, Any] = {
    "FsServerDefaults": {
        "blockSize": BLOCK_BYTES,
        "bytesPerChecksum": 512,
        "checksumType": _CRC32C,
        "defaultStoragePolicyId": 0,
        "encryptDataTransfer": False,
        "fileBufferSize": 65536,
        "keyProviderUri": "",
        "replication": 1,
        "trashInterval": 0,
        "writePacketSize": 65536,
    }
}
