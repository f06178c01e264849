"""A WebHDFS request: its caller, path and parameters. All of them are checked here."""

from __future__ import annotations

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


def read_request(http: web.Request, identify: Callable[[str], Caller]) -> WebHdfsRequest:
    """Check the request's credential and path.

    ``identify`` returns the caller to whom a credential belongs. Raises NotAllowed, InvalidInput.
    """
    caller = _caller(http, identify)
    prove(http)
    raw = http.rel_url.raw_path
    try:
        path = unquote(raw.removeprefix(PREFIX), errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("the path is not UTF-8", field="path") from None
    operation = f"{http.method} {http.query.get('op', '').upper()[:40]}"
    return WebHdfsRequest(operation, caller, path or "/", http)


def _caller(http: web.Request, identify: Callable[[str], Caller]) -> Caller:
    token, user = http.query.get("delegation", ""), http.query.get("user.name", "")
    try:
        return identify(decode(token) if token else user)
    except InvalidInput as error:
        raise NotAllowed(
            f"the state gateway cannot identify the sender: {error.message}",
            hint="only drivers and executors that this task manager started have access; each has a token",
        ) from None
