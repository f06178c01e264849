"""One function object in a Python worker, and the thread that answers the driver for it.

The connection to the driver may break while both processes live. Then the instance continues to take rows and
reconnects; the driver waits for it before it calls any instance. If the driver has given up the instance as lost in the
meantime, or is of a release whose instances cannot reconnect, the instance is closed, and the worker makes another one
for the next rows.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from emberkeep.api.function_channel import Channel
from emberkeep.api.function_link import FAREWELL, NOT_BEGUN, WITHOUT_RETURN, FunctionCall, Link, Reply, join_driver
from emberkeep.api.function_state import decode_state, encode_state
from emberkeep.api.functions import close_once, open_once
from emberkeep.base.errors import Conflict, EmberkeepError, Fatal, RetryLater

_LEAVE_SECONDS = 10.0  # seconds that a call under way may take when the worker ends
_FAREWELL_SECONDS = 3.0  # for the driver's acknowledgement; 2 seconds later the executor's processes are killed
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 2.0  # seconds between tries to reconnect


class Instance:
    """A function object and its connection to the driver.

    ``ended`` is called when the instance is closed permanently while the worker lives. The constructor raises
    EmberkeepError (the driver cannot be reached), and what the function raises.
    """

    def __init__(self, name: str, function: Any, link: Link | None, ended: Callable[[Instance], None]) -> None:
        self.function = function
        self._name = name
        self._link = link
        self._ended = ended
        self._id = secrets.token_hex(16)
        self._answering = threading.Lock()
        self._is_closed = False
        self._is_leaving = False
        self._farewell: Reply | None = None
        self._farewell_has_come = threading.Event()
        self._is_refused = False  # the driver's port refused the connection: the driver is gone
        if link is None:
            open_once(function)
            return
        joined = join_driver(link, name, self._id)
        self._channel, self._comes_again = joined.channel, joined.version > WITHOUT_RETURN
        self._begin(joined.states)
        threading.Thread(target=self._serve, args=(link,), name=f"emberkeep-function-{name}", daemon=True).start()
        _before_exit(self._leave)

    def _begin(self, states: list[bytes]) -> None:
        try:
            if states and hasattr(self.function, "initialize_state"):
                self.function.initialize_state([decode_state(self._name, state) for state in states])
            open_once(self.function)
        except BaseException as error:
            with suppress(EmberkeepError):  # the driver keeps the states for the next try
                self._channel.send(Reply(number=NOT_BEGUN, error=f"{type(error).__name__}: {error}"))
            self._channel.close()
            raise

    # --- the answering thread -----------------------------------------------------------------------------------------

    def _serve(self, link: Link) -> None:
        while True:
            try:
                self._answer_all()
            except EmberkeepError:
                self._channel.close()
            if self._farewell_has_come.is_set() or self._is_closed:
                return
            if not self._comes_again:
                if not self._is_leaving:
                    self._given_up()
                return
            try:
                self._channel = self._rejoined(link)
            except Conflict:
                self._given_up()
                return

    def _given_up(self) -> None:
        """Close the instance, which takes no more rows: the driver counts it as lost."""
        self._is_closed = True  # first, so that no farewell is sent for it
        self._ended(self)
        close_once(self.function)

    def _rejoined(self, link: Link) -> Channel:
        """Return a new connection.

        Raises Conflict if the driver counts this instance as lost, or if the driver of another attempt replies.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                channel = join_driver(link, self._name, self._id, again=True).channel
            except RetryLater as error:
                self._is_refused = isinstance(error.__cause__, ConnectionRefusedError)
            else:
                self._is_refused = False
                return channel
            self._farewell_has_come.wait(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    def _answer_all(self) -> None:
        """Answer calls until the farewell is acknowledged. Raises RetryLater when the connection breaks."""
        if self._farewell is not None:
            self._send(self._farewell)
        while True:
            call = self._channel.receive(FunctionCall)
            if call.number == FAREWELL:
                self._farewell_has_come.set()
                return
            with self._answering:
                self._send(self._answer(call))

    def _send(self, reply: Reply) -> None:
        try:
            self._channel.send(reply)
        except Fatal as error:  # too large: report why to the driver; the connection stays
            self._channel.send(Reply(number=reply.number, error=f"the state of {self._name}: {error}"))

    def _answer(self, call: FunctionCall) -> Reply:
        try:
            if call.method == "close":
                self._close()
                return Reply(number=call.number)
            method = getattr(self.function, call.method, None)
            result = method(*call.arguments) if callable(method) else None
            if call.method == "snapshot_state" and result is not None:
                return Reply(number=call.number, state=encode_state(self._name, result))
        except Exception as error:  # noqa: BLE001 - whatever the user's method raises is told to the driver
            return Reply(number=call.number, error=f"{type(error).__name__}: {error}")
        return Reply(number=call.number)

    # --- the end of the worker ----------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Send the state to the driver for a later instance, and close the function. The worker or its executor ends.

        If the driver is gone, only close the function. Do nothing if it is closed already (END-3).
        """
        if self._is_leaving:
            return
        self._is_leaving = True
        if not self._answering.acquire(timeout=_LEAVE_SECONDS) or self._is_closed:
            return
        try:
            if not self._driver_is_there():
                return
            self._farewell = self._answer(FunctionCall(number=FAREWELL, method="snapshot_state"))
            with suppress(EmberkeepError):  # the other thread reconnects and sends it
                self._send(self._farewell)
            if self._comes_again:  # else the driver does not acknowledge it
                self._farewell_has_come.wait(_FAREWELL_SECONDS)
        finally:
            self._close()

    def _driver_is_there(self) -> bool:
        """True if the driver is reachable. Waits until that is known, for a few seconds at most.

        If the connection has broken, the other thread reconnects.
        """
        deadline = time.monotonic() + _FAREWELL_SECONDS
        while self._channel.has_ended():
            if self._is_refused or time.monotonic() >= deadline or not self._comes_again:
                return False
            time.sleep(_FIRST_PAUSE)
        return True

    def _close(self) -> None:
        self._is_closed = True
        close_once(self.function)


_leaving: list[Callable[[], None]] = []
_exits_in: int | None = None  # id of the process that is ending


def _before_exit(action: Callable[[], None]) -> None:
    """Call ``action`` before this worker ends.

    Workers end by ``os._exit``, which calls no exit handlers, or by the SIGHUP that Spark's daemon sends when their
    executor ends.
    """
    if not _leaving:
        _take_exits(os.getpid())
    _leaving.append(action)


def _take_exits(own: int) -> None:
    original = os._exit

    def leave(status: int) -> None:
        global _exits_in  # noqa: PLW0603 - a process ends once
        if os.getpid() == own and _exits_in is None:  # processes that user code forks have no instances
            _exits_in = own
            for action in _leaving:
                with suppress(Exception):
                    action()
        original(status)

    def hung_up(*_: object) -> None:
        if _exits_in is None:  # else it is ending already
            leave(128 + signal.SIGHUP)

    os._exit = leave  # type: ignore[assignment]
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, hung_up)
        _keep_handler()


def _keep_handler() -> None:
    """Keep our SIGHUP handler: Spark's daemon resets SIGHUP before each task."""
    original = signal.signal

    def without_hangups(number: Any, handler: Any) -> Any:
        if number == signal.SIGHUP and handler == signal.SIG_DFL:
            return signal.getsignal(signal.SIGHUP)
        return original(number, handler)

    signal.signal = without_hangups  # type: ignore[assignment]
