"""Handling of SIGTERM in a driver: raise an exception in the script, and notify Emberkeep in any case.

Emberkeep is notified even if the script sets its own handler for the signal.
"""

from __future__ import annotations

import functools
import os
import signal
import types
from collections.abc import Callable
from typing import Any


class Cancelled(BaseException):
    """Raised in the main thread on SIGTERM. Not an Exception, so that ``except Exception`` does not swallow it."""


def raise_on_sigterm(told: Callable[[], None] = lambda: None) -> None:
    """Make the first SIGTERM raise Cancelled in the main thread, unless the script sets its own handler.

    ``told`` is called at each SIGTERM, before any handler, and must not wait for a lock. In processes that the script
    forks, SIGTERM has its default effect.
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
    """Ignore SIGTERM from now on. Call this in the main thread before steps that must not be interrupted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _tell_before_handlers(told: Callable[[], None]) -> None:
    """Patch ``signal`` so that every SIGTERM handler set from now on calls ``told`` first, unseen by the script."""
    own, set_handler, get_handler = os.getpid(), signal.signal, signal.getsignal
    standing: tuple[Any, Any] = (None, None)  # (the installed wrapper, the handler that the script has set)

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
