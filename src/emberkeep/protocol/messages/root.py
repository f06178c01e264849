"""What all messages share: their root, their version, and the plain reply."""

from __future__ import annotations

from emberkeep.base.compatible import Compatible

PROTOCOL_VERSION = 1


class Message(Compatible, frozen=True, kw_only=True):
    """Root of all messages."""


class Ack(Message, frozen=True, kw_only=True):
    """The request is done, or was done before.

    ``never_had_by``: in reply to StopDriver, the TaskManager's instance if it has no such driver and refuses to start
    it from now on; "" otherwise.
    """

    never_had_by: str = ""
