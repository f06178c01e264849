"""A WebHDFS request: its caller, path and parameters. All of them are checked here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import unquote

from aiohttp import web

from emberkeep.adapters.http.served_connection import prove
from emberkeep.adapters.webhdfs.errors import NotAllowed
from emberkeep.base.errors import InvalidInput
from emberkeep.local_state.model import Caller
from emberkeep.protocol.encoding.hadoop_token import decode

PREFIX = "/webhdfs/v1"
_LARGEST = 2**63 - 1
_FLAGS = {"true": True, "false": False}
_REMEMBERED = 1024  # valid credentials: more than a node has processes


@dataclass(frozen=True)
class WebHdfsRequest:
    """An authenticated request.

    ``operation`` is the method and op, such as "GET OPEN". ``path`` is decoded and begins with "/".
    """

    operation: str
    caller: Caller
    path: str
    http: web.Request

    def text(self, name: str) -> str:
        """Return the parameter ``name``, or "" if it is missing."""
        return self.http.query.get(name, "")

    def flag(self, name: str) -> bool:
        """Return the parameter ``name``, true or false; False if it is missing. Raises InvalidInput."""
        text = self.http.query.get(name, "").lower()
        if not text:
            return False
        if text not in _FLAGS:
            raise InvalidInput(f"{text[:40]!r} is neither true nor false", field=name)
        return _FLAGS[text]

    def number(self, name: str) -> int | None:
        """Return the parameter ``name``, a number of at least 0, or None if it is missing or "null".

        Raises InvalidInput.
        """
        text = self.http.query.get(name, "")
        if text in ("", "null"):
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 20) or int(text) > _LARGEST:
            raise InvalidInput(f"{text[:40]!r} is not a number of bytes", field=name)
        return int(text)


class Senders:
    """Who sends requests, by the credential in them.

    A valid credential is checked once and remembered, because each process shows the same one with each request. That
    is sound because no credential is withdrawn while the gateway's process lives: the fences, which every request
    passes, decide whether its attempt may still do anything. What is not valid is not remembered.
    """

    def __init__(self, identify: Callable[[str], Caller]) -> None:
        """``identify`` returns the caller to whom a credential belongs; it raises InvalidInput."""

        @functools.lru_cache(maxsize=_REMEMBERED)
        def known(token: str, user: str) -> Caller:
            return identify(decode(token) if token else user)

        self._known = known

    def of(self, http: web.Request) -> Caller:
        """Return the caller who sent a request. Raises NotAllowed."""
        token = http.query.get("delegation", "")
        try:
            return self._known(token, "" if token else http.query.get("user.name", ""))
        except InvalidInput as error:
            raise NotAllowed(
                f"the state gateway cannot identify the sender: {error.message}",
                hint="only drivers and executors that this task manager started have access; each has a token",
            ) from None


def read_request(http: web.Request, senders: Senders) -> WebHdfsRequest:
    """Check the request's credential and path. Raises NotAllowed, InvalidInput."""
    caller = senders.of(http)
    prove(http)
    raw = http.rel_url.raw_path
    try:
        path = unquote(raw.removeprefix(PREFIX), errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("the path is not UTF-8", field="path") from None
    operation = f"{http.method} {http.query.get('op', '').upper()[:40]}"
    return WebHdfsRequest(operation, caller, path or "/", http)
