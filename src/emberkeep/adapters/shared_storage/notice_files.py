"""Files with the notifications that wait for the webhook, so that the next leader sends what this one has not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from emberkeep.adapters.shared_storage.epoch_files import EpochFiles
from emberkeep.base.errors import Damaged, EmberkeepError, Fatal, NewerFormat
from emberkeep.notifications.encoding import decode_waiting, encode_waiting
from emberkeep.notifications.model import Notification

log = structlog.get_logger(__name__)


class NoticeFiles:
    """Implements NoticeStore. ``events``, ``problem``: see EpochFiles."""

    def __init__(self, events: Path, problem: Callable[[], EmberkeepError | None]) -> None:
        self._files = EpochFiles(events, "webhook", problem)

    async def earlier(self, lineage: str, epoch: int) -> list[Notification]:
        found: dict[str, Notification] = {}  # a leader that took over may have died before it removed the earlier file
        for path, data in reversed(await self._files.earlier(lineage, epoch)):
            try:
                found |= {each.id: each for each in decode_waiting(data, where=str(path))}
            except NewerFormat as error:
                self._files.leave(path)
                reason = str(error)
                log.warning("events that waited for the webhook are of a newer release; leaving them", reason=reason)
            except (Damaged, Fatal) as error:
                log.warning("events that waited for the webhook cannot be used", reason=str(error))
        return list(found.values())

    async def keep(self, lineage: str, epoch: int, waiting: Sequence[Notification]) -> None:
        await self._files.keep(lineage, epoch, encode_waiting(waiting))
