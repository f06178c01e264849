"""Verification of a savepoint, of which the leader remembers the result."""

from __future__ import annotations

from emberkeep.base.errors import Absent
from emberkeep.lifecycle.verifications import ReadFiles
from emberkeep.protocol.rest_savepoints import SavepointCheck, SavepointFiles
from emberkeep.rest.serving.api import Api


async def verified_files(api: Api, wanted: SavepointFiles) -> SavepointCheck:
    """Read the files and compare them with the manifest. Raises what ``rest.ports.Savepoints.verify`` raises."""
    path = wanted.savepoint_path
    try:
        check = await api.savepoints.verify(path, wanted.first, wanted.count)
    except Absent as error:
        api.verified_savepoints.note_absent(path, error.message, api.now_ms())
        raise
    read = ReadFiles(
        first=wanted.first,
        files=check.files,
        total=check.manifest_files,
        size=check.size,
        problems=tuple(check.problems),
        warnings=tuple(check.warnings),
    )
    api.verified_savepoints.note(path, read, api.now_ms())
    return check
