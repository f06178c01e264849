"""What the clients of a history have recorded."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from campaign.linearizability.history import Operation
from campaign.processes.calls import SECONDS, Abandoned, Calls, NotDone, Reply, Unknown

JOBS, BLOCKLIST = "jobs", "blocklist"


class Unexpected(Exception):
    """A reply that no state of the object explains."""


def _nothing() -> None:
    """Note nothing."""


@dataclass(frozen=True)
class Sent:
    """A request. ``abandoned`` is called if its client does not wait any longer than ``seconds``."""

    method: str
    base: str
    path: str
    body: Any = None
    seconds: float = SECONDS
    abandoned: Callable[[], None] = _nothing


class Recorder:
    """The histories of the job store and the blocklist, by the clock of this machine.

    ``counts``: outcomes by kind of operation. ``answered``: when each request that got a reply was sent, and when the
    reply came. ``unexpected``: replies that are violations by themselves.
    """

    def __init__(self) -> None:
        self.histories: dict[str, list[Operation]] = {JOBS: [], BLOCKLIST: []}
        self.counts: Counter[str] = Counter()
        self.answered: list[tuple[float, float]] = []
        self.unexpected: list[str] = []

    async def record(
        self, calls: Calls, history: str, begun: Operation, sent: Sent, result: Callable[[Reply], Any]
    ) -> bool:
        """Send a request, and record it unless it has had no effect. Return True if a reply has its result.

        ``result``: returns the operation's result. Raises NotDone and Unexpected.
        """
        kind = begun.kind
        try:
            reply = await calls.call(sent.method, sent.base, sent.path, sent.body, seconds=sent.seconds)
        except NotDone:
            self.counts[f"{kind}: refused"] += 1
            return False
        except Unknown as error:
            if isinstance(error, Abandoned):
                sent.abandoned()
            self.counts[f"{kind}: unknown"] += 1
            if kind != "read":
                self.histories[history].append(begun)
            return False
        returned = time.monotonic()
        try:
            done = msgspec.structs.replace(begun, returned=returned, result=result(reply))
        except NotDone:
            self.counts[f"{kind}: refused"] += 1
        except Unexpected:
            self._unexpected(sent, reply)
        else:
            self.counts[f"{kind}: done"] += 1
            self.answered.append((begun.invoked, returned))
            self.histories[history].append(done)
            return True
        return False

    async def read(self, calls: Calls, sent: Sent) -> tuple[float, float, Any] | None:
        """Return when a listing was sent, when the reply came, and the reply; None if there is none."""
        invoked = time.monotonic()
        try:
            reply = await calls.call(sent.method, sent.base, sent.path, seconds=sent.seconds)
        except (NotDone, Unknown) as error:
            if isinstance(error, Abandoned):
                sent.abandoned()
            self.counts["list: refused"] += 1
            return None
        returned = time.monotonic()
        if reply.status != 200:
            self._unexpected(sent, reply)
            return None
        self.counts["list: done"] += 1
        self.answered.append((invoked, returned))
        return invoked, returned, reply.body

    def _unexpected(self, sent: Sent, reply: Reply) -> None:
        self.unexpected.append(f"{sent.method} {sent.path} was answered with {reply.status}: {reply.body}")
