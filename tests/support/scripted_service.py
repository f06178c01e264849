"""A process at the other end of the line: it answers as the test says and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from emberkeep.base.errors import EmberkeepError, InvalidInput
from emberkeep.protocol.messages import Message

MessageT = TypeVar("MessageT", bound=Message)

Answer = Message | EmberkeepError | Callable[[Message], Message]


class ScriptedService:
    """RpcService. ``answers`` by the kind of the request; an error is raised at the caller."""

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
        """The requests of one kind, oldest first."""
        return [request for request in self.requests if isinstance(request, kind)]
