"""Waiting for places that are unavailable now: a missing file system proves nothing about its files."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from emberkeep.base.errors import Unavailable
from emberkeep.spark.notices import Notices

log = structlog.get_logger(__name__)

_PAUSE = 1.0  # seconds between tries


def wait_until_available(look: Callable[[], None], what: str, notices: Notices) -> None:
    """Return once ``look`` no longer raises Unavailable; call it once a second until then.

    Report to the user and the log what the script waits for. The wait has no limit: a user can cancel the job.
    """
    waits = False
    while True:
        try:
            look()
        except Unavailable as error:
            if not waits:
                log.warning("waiting for storage that is unavailable", what=what, reason=str(error))
                notices.say(f"waiting for the job's {what}: {error}")
            waits = True
            time.sleep(_PAUSE)
        else:
            break
    if waits:
        log.info("the storage is available again", what=what)
