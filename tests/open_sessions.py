"""HTTP sessions that a test left open, found as it ends: the garbage collector would fail a later, innocent test."""

from __future__ import annotations

import traceback
import weakref
from typing import Any

import aiohttp

_made: weakref.WeakKeyDictionary[aiohttp.ClientSession, str] = weakref.WeakKeyDictionary()
_plain = aiohttp.ClientSession.__init__


def watch_sessions() -> None:
    """Note where each session is made."""

    def noted(session: aiohttp.ClientSession, *arguments: Any, **options: Any) -> None:
        _plain(session, *arguments, **options)
        _made[session] = "".join(traceback.format_stack(limit=12)[:-1])

    aiohttp.ClientSession.__init__ = noted  # type: ignore[assignment,method-assign]


def left_open() -> list[str]:
    """Forget the sessions whose event loop has ended; return where the ones were made that nobody had closed."""
    ended = [(session, place) for session, place in _made.items() if session._loop.is_closed()]
    for session, _place in ended:
        del _made[session]
    return [place for session, place in ended if not session.closed]
