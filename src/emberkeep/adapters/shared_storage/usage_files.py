"""Files with the usage of all task managers. The one with the highest epoch counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import structlog

from emberkeep.adapters.shared_storage.epoch_files import EpochFiles
from emberkeep.base.errors import Damaged, EmberkeepError, Fatal, NewerFormat
from emberkeep.usage.encoding import decode_usage, encode_usage
from emberkeep.usage.histories import KeptHistories

log = structlog.get_logger(__name__)


class UsageFiles:
    """Implements UsageStore. ``events``, ``problem``: see EpochFiles."""

    def __init__(self, events: Path, problem: Callable[[], EmberkeepError | None]) -> None:
        self._files = EpochFiles(events, "nodes", problem)

    async def earlier(self, lineage: str, epoch: int) -> KeptHistories | None:
        found: KeptHistories | None = None
        for path, data in await self._files.earlier(lineage, epoch):
            try:
                histories = decode_usage(data, where=str(path))
            except NewerFormat as error:
                self._files.leave(path)
                log.warning("the usage of nodes in the past is of a newer release; leaving it", reason=str(error))
            except (Damaged, Fatal) as error:
                log.warning("the usage of nodes in the past cannot be used", reason=str(error))
            else:
                found = found or histories
        return found

    async def keep(self, lineage: str, epoch: int, histories: KeptHistories) -> None:
        await self._files.keep(lineage, epoch, encode_usage(histories))
