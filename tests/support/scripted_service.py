"""A remote process that replies as the test specifies and records its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from emberkeep.base.errors import EmberkeepError, InvalidInput
from emberkeep.protocol.messages.root import Message

MessageT = TypeVar("MessageT", bound=Message)

Answer = Message | EmberkeepError | Callable[[Message], Message]


class ScriptedService:
    """Implements RpcService. ``answers`` has a reply per type of request; an error is raised at the caller."""

    def __init__(self, answers: dict[type[Message], Answer]) -> None:
        self.answers = answers
        self.requests: list[Message] = []

    async def serve(self, request: Message) -> Message:
        self.requests.append(request)
        answer = self.answers.get(type(request))
        if answer is None:
            raise InvalidInput(f"no answer to {type(request).__name__} was scripted")
        if isinstance(answer, EmberkeepError):
            raise answer
        return answer if isinstance(answer, Message) else answer(request)

    def asked(self, kind: type[MessageT]) -> list[MessageT]:
        """Return the requests of one type, oldest first."""
        return [request for request in self.requests if isinstance(request, kind)]
