"""The driver's state of one instance of a function on an executor."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from emberkeep.api.function_channel import Channel
from emberkeep.api.function_link import WITHOUT_RETURN, FunctionCall, Hello, Reply


class InstanceContact(Enum):
    """The driver's contact with an instance."""

    GREETING = auto()  # connected, but the handshake on the current channel is not complete
    OPEN = auto()  # takes calls
    SILENT = auto()  # its connection is broken
    GONE = auto()  # it has left, or is lost


@dataclass(eq=False)
class RemoteInstance:
    """One instance of a function on an executor.

    - ``taken``: the instance's last known state, which another instance gets if this one is lost: the states that it
      began with, later its state in its newest snapshot.
    - ``until``: in ``time.monotonic()`` seconds; the instance is lost unless it reconnects or leaves by then. None: no
      deadline.
    - ``unseen``: number of consecutive checks in which Spark did not list its executor.
    - ``asked``: the call that it has not answered yet.
    """

    channel: Channel
    hello: Hello
    taken: list[bytes]
    replies: dict[int, Reply] = field(default_factory=dict)
    asked: FunctionCall | None = None
    contact: InstanceContact = InstanceContact.GREETING
    farewell: Reply | None = None  # its last reply, with its state, once it has left
    until: float | None = None
    unseen: int = 0

    @property
    def is_silent(self) -> bool:
        return self.contact is InstanceContact.SILENT

    @property
    def is_gone(self) -> bool:
        return self.contact is InstanceContact.GONE

    @property
    def name(self) -> str:
        return self.hello.name

    @property
    def instance(self) -> str:
        return self.hello.instance

    @property
    def comes_again(self) -> bool:
        """True if the instance reconnects after its connection has broken."""
        return self.hello.version > WITHOUT_RETURN

    @property
    def executor(self) -> str:
        """Spark's id of the executor; "" if unknown."""
        return self.hello.executor

    @property
    def place(self) -> str:
        return f"{self.hello.name} in process {self.hello.pid} on {self.hello.host}"

    def exchange(self, channel: Channel) -> Channel:
        """Replace the channel after a reconnection, before the handshake is complete. Return the old channel."""
        before, self.channel = self.channel, channel
        self.contact, self.until = InstanceContact.GREETING, None
        return before

    def note_seen(self) -> None:
        """Record that Spark lists the executor; remove the deadline unless the connection is broken."""
        self.unseen = 0
        if not self.is_silent:
            self.until = None

    def set_deadline(self, until: float) -> None:
        """Set ``until``, unless an earlier deadline is set."""
        self.until = until if self.until is None else min(self.until, until)
