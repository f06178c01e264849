"""What the driver knows of one instance of a function on an executor."""

from __future__ import annotations

from dataclasses import dataclass, field

from emberkeep.api.function_channel import Channel
from emberkeep.api.function_link import WITHOUT_RETURN, Call, Hello, Reply


@dataclass(eq=False)
class RemoteInstance:
    """``taken``: what of its state is known here, given back should it be lost: the states that it began with, then its
    state in its newest snapshot. ``until``: of ``time.monotonic()``; when it has neither come again nor left by then,
    it is lost. ``unseen``: looks at Spark in a row that did not show its executor. ``asked``: what it has not answered
    yet."""

    channel: Channel
    hello: Hello
    taken: list[bytes]
    replies: dict[int, Reply] = field(default_factory=dict)
    asked: Call | None = None
    is_welcome: bool = False  # its present channel is past the introduction, and takes calls
    farewell: Reply | None = None  # it has left, with its state
    is_silent: bool = False  # its connection is broken
    until: float | None = None
    unseen: int = 0
    is_gone: bool = False

    @property
    def name(self) -> str:
        return self.hello.name

    @property
    def instance(self) -> str:
        return self.hello.instance

    @property
    def comes_again(self) -> bool:
        """Whether it connects again when its connection has broken."""
        return self.hello.version > WITHOUT_RETURN

    @property
    def executor(self) -> str:
        """Spark's id; "" where nobody knows."""
        return self.hello.executor

    @property
    def place(self) -> str:
        return f"{self.hello.name} in process {self.hello.pid} on {self.hello.host}"

    def exchange(self, channel: Channel) -> Channel:
        """It has connected again, and is not welcome yet. Returns the channel before."""
        before, self.channel = self.channel, channel
        self.is_welcome = False
        self.is_silent, self.until = False, None
        return before

    def is_seen(self) -> None:
        """Its executor is there."""
        self.unseen = 0
        if not self.is_silent:
            self.until = None

    def has_until(self, until: float) -> None:
        self.until = until if self.until is None else min(self.until, until)
