"""A driver's SIGTERM: it raises in the script, and is known of whatever the script does with it."""

from __future__ import annotations

import functools
import os
import signal
import types
from collections.abc import Callable
from typing import Any


class Cancelled(BaseException):
    """Raised in the main thread when the process is told to end. Not an Exception: scripts should not swallow it."""


def raise_on_sigterm(told: Callable[[], None] = lambda: None) -> None:
    """Let the first SIGTERM raise Cancelled in the main thread, unless the script sets a handler of its own.

    ``told``: called at each one, before any handler; it must not wait for a lock. Children that the script forks die
    of it as usual.
    """
    raised = False

    def handle(_signal: int, _frame: object) -> None:
        nonlocal raised
        if not raised:
            raised = True
            raise Cancelled

    _tell_before_handlers(told)
    signal.signal(signal.SIGTERM, handle)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))


def raise_no_more() -> None:
    """What follows is to be done whether the process is told to end or not. Call it in the main thread."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _tell_before_handlers(told: Callable[[], None]) -> None:
    """Whatever sets a handler from now on, ``told`` comes first; to the script it looks as if it stood alone."""
    own, set_handler, get_handler = os.getpid(), signal.signal, signal.getsignal
    standing: tuple[Any, Any] = (None, None)  # in the place of the script's handler, and that one

    @functools.wraps(set_handler)
    def set_telling(number: Any, handler: Any) -> Any:
        nonlocal standing
        before = get_given(number)
        if number != signal.SIGTERM or not callable(handler) or os.getpid() != own:
            set_handler(number, handler)
            return before

        def tell_first(number: int, frame: types.FrameType | None) -> None:
            told()
            handler(number, frame)

        set_handler(number, tell_first)
        standing = tell_first, handler
        return before

    @functools.wraps(get_handler)
    def get_given(number: Any) -> Any:
        found = get_handler(number)
        return standing[1] if found is not None and found is standing[0] else found

    patched: Any = signal
    patched.signal, patched.getsignal = set_telling, get_given
