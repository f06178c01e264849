"""The event log of a driver's SparkContexts in the job's durable storage: made before Spark starts, and bounded."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from pathlib import Path

import structlog

from emberkeep.adapters.shared_storage.event_logs import Lasting, attempt_directory, make_event_log, trim_event_logs
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.processes.threads import started_pool
from emberkeep.daemons.driver.storage import require_own_place
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.spark.script.runner import OWN_THREAD_PREFIX

log = structlog.get_logger(__name__)

_PREPARING_SECONDS = 5.0  # a storage that hangs must not keep the script from starting
_TRIMMING_SECONDS = 60.0


def prepared_event_log(spec: DriverSpec, seconds: float = _PREPARING_SECONDS) -> Path | None:
    """Return the directory for the attempt's event logs; None, with a line for the user, if nothing can be written.

    Spark would not start without its directory, and the script must start in any case.
    """
    replies: queue.SimpleQueue[Path | Exception] = queue.SimpleQueue()

    def prepare() -> None:
        try:
            require_own_place(spec)
            replies.put(make_event_log(Path(spec.checkpoint_root), spec.attempt))
        except (EmberkeepError, OSError) as error:
            replies.put(error)

    threading.Thread(target=prepare, name=f"{OWN_THREAD_PREFIX}-event-log", daemon=True).start()
    try:
        reply = replies.get(timeout=seconds)
    except queue.Empty:
        reply = TimeoutError(f"the storage did not answer within {seconds:g} s")
    if isinstance(reply, Path):
        return reply
    log.warning("this attempt writes no event log", place=spec.checkpoint_root, reason=str(reply))
    print(  # noqa: T201 - the job's own error output
        f"emberkeep: this attempt writes no event log, and its Spark UI ends with it: cannot write to "
        f"{attempt_directory(Path(spec.checkpoint_root), spec.attempt)}: {reply}",
        file=sys.stderr,
        flush=True,
    )
    return None


class EventLogBound:
    """Keeps the event logs of an attempt within their bound, while Spark writes them.

    ``lasting``: see ``trim_event_logs``; called on a thread that calls nothing else.
    """

    def __init__(self, spec: DriverSpec, lasting: Lasting, interval: float = _TRIMMING_SECONDS) -> None:
        self._spec = spec
        self._lasting = lasting
        self._interval = interval

    async def run(self) -> None:
        """Remove what is over the bound, again and again until cancelled. Log errors."""
        thread = None
        while True:
            await asyncio.sleep(self._interval)
            try:
                if thread is None:
                    thread = started_pool(1, f"{OWN_THREAD_PREFIX}-event-log-bound")
                await asyncio.get_running_loop().run_in_executor(thread, self._trim)
            except (EmberkeepError, OSError) as error:
                log.warning("cannot shorten the event log now", place=self._spec.checkpoint_root, reason=str(error))

    def _trim(self) -> None:
        require_own_place(self._spec)
        trim_event_logs(attempt_directory(Path(self._spec.checkpoint_root), self._spec.attempt), self._lasting)
