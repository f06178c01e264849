"""Operations that a client starts and then polls by trigger id. Bounded; unknown to later leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from emberkeep.base.errors import Absent, EmberkeepError, RetryLater

AT_ONCE = 8
_KEPT = 1000  # operations that are remembered; running ones are never forgotten


@dataclass
class Operation:
    """State of an operation: succeeded if ``done`` is True and ``error`` is None. ``left``: what its work returned."""

    done: bool = False
    error: EmberkeepError | None = None
    left: tuple[str, ...] = ()


class Operations:
    """All operations of one kind. Belongs to one event loop."""

    def __init__(self) -> None:
        self._known: dict[str, Operation] = {}  # in the order of their starts
        self._running: set[asyncio.Task[None]] = set()

    def start(self, trigger_id: str, work: Coroutine[Any, Any, tuple[str, ...]]) -> None:
        """Run ``work``, which may raise EmberkeepError, in the background. Do nothing if the trigger id is known.

        Raises RetryLater if AT_ONCE operations run already.
        """
        if trigger_id in self._known:
            work.close()
            return
        if len(self._running) >= AT_ONCE:
            work.close()
            raise RetryLater(f"{AT_ONCE} such operations run already", hint="try again in a second")
        operation = self._known[trigger_id] = Operation()
        over = [known for known, earlier in self._known.items() if earlier.done]
        for forgotten in over[: max(0, len(self._known) - _KEPT)]:
            del self._known[forgotten]
        task = asyncio.create_task(self._run(operation, work), name=f"operation-{trigger_id}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, operation: Operation, work: Coroutine[Any, Any, tuple[str, ...]]) -> None:
        try:
            operation.left = await work
        except EmberkeepError as error:
            operation.error = error
        except asyncio.CancelledError:
            operation.error = RetryLater(
                "the JobManager lost leadership during the operation", hint="send the request again"
            )
            raise
        except Exception as error:  # noqa: BLE001 - a bug fails this operation, not the process
            operation.error = EmberkeepError(f"internal error: {type(error).__name__}: {error}")
        finally:
            operation.done = True

    def find(self, trigger_id: str) -> Operation:
        """Return an operation. Raises Absent."""
        operation = self._known.get(trigger_id)
        if operation is None:
            raise Absent(
                f"no operation {trigger_id} is known",
                hint="an earlier leader may have received it: send the request again",
            )
        return operation

    async def close(self) -> None:
        """Cancel the running operations and wait until they have ended."""
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
