"""Have a savepoint checked, one batch of files at a time, so that progress can be shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from emberkeep.base.errors import InvalidInput, RetryLater
from emberkeep.client.log_copy import ProblemClock
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_savepoints import SavepointCheck, SavepointFileInfo

_PIECE_BYTES = 64 * 1024**2  # or one file that is larger
_PIECE_FILES = 500
_PAUSE = 0.5  # seconds
_BUSY_LIMIT = 300.0

Look = Callable[[int, int, int, int], None]


async def verified(client: RestClient, path: str, look: Look) -> SavepointCheck:
    """Compare every file of a savepoint with its manifest.

    ``look`` is called after each batch of files but the last, with four numbers: files read, files in all, bytes read,
    bytes in all. Raises Absent, RetryLater (the JobManager has been busy with other checks for 5 minutes), Fatal.
    """
    try:
        files = (await client.savepoints.manifest(path)).files
    except InvalidInput:  # the manifest is damaged, which the check reports
        return await client.savepoints.verify(path)
    total, done, size = sum(file.size for file in files), 0, 0
    problems: list[str] = []
    warnings: list[str] = []
    while done < len(files):
        count = _piece(files[done:])
        check = await _checked(client, path, done, count)
        problems += check.problems
        warnings = check.warnings
        size += sum(file.size for file in files[done : done + count])
        done += count
        if done < len(files):
            look(done, len(files), size, total)
    return SavepointCheck(path=path, files=len(files), size=total, problems=problems, warnings=warnings)


def _piece(files: list[SavepointFileInfo]) -> int:
    """Return how many of ``files``, counted from the first, the next request for a check must cover."""
    size = 0
    for count, file in enumerate(files[:_PIECE_FILES]):
        size += file.size
        if size > _PIECE_BYTES and count:
            return count
    return min(len(files), _PIECE_FILES)


async def _checked(client: RestClient, path: str, first: int, count: int) -> SavepointCheck:
    busy = ProblemClock(_BUSY_LIMIT)
    while True:
        try:
            return await client.savepoints.verify(path, first, count)
        except RetryLater:
            if busy.is_over():
                raise
            await asyncio.sleep(_PAUSE)
