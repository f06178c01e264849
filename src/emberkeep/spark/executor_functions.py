"""The driver's side of functions that live on executors: who is there, calls to all of them, states that nobody has."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from emberkeep.api.function_link import Call, Channel, Hello, Link, Reply, recognise, welcome
from emberkeep.base.errors import EmberkeepError
from emberkeep.lifecycle.errors import UserFunctionFailed

log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 10.0  # nobody waits long for the end
_MOST_INSTANCES = 4_096
_SEPARATOR = "@"  # between a function's name and the number of its state


class _Remote:
    """One instance. ``taken``: what of its state is known here, given back should it be lost: the states that it began
    with, then its state in the newest savepoint that is complete."""

    def __init__(self, channel: Channel, hello: Hello, taken: list[bytes]) -> None:
        self.channel = channel
        self.name = hello.name
        self.place = f"{hello.name} in process {hello.pid} on {hello.host}"
        self.taken = taken
        self.replies: dict[int, Reply] = {}
        self.farewell: Reply | None = None  # it has left, with its state
        self.is_gone = False


class ExecutorFunctions:
    """One per driver process, any thread. One reading thread for each instance; workers are as many as cores."""

    def __init__(
        self, host: str, attempt: int, restored: Callable[[], Mapping[str, bytes]], seconds: float = 600.0
    ) -> None:
        """``host``: address that executors reach. ``restored``: states of the savepoint that the job starts from.
        ``seconds``: in which all instances have to answer a call."""
        self._seconds = seconds
        self._host = host
        self._attempt = attempt
        self._restored = restored
        self._changed = threading.Condition()
        self._remotes: list[_Remote] = []
        self._kept: dict[str, list[bytes]] | None = None  # None: the savepoint's have not been looked at
        self._snapshot: list[tuple[_Remote, list[bytes]]] = []  # who was asked for the newest one, with its state
        self._numbers = 0
        self._link: Link | None = None

    def link(self) -> Link:
        """Where workers connect; listens from the first call on. Raises OSError."""
        with self._changed:
            if self._link is None:
                listening = socket.create_server((self._host, 0), backlog=256)
                port = int(listening.getsockname()[1])
                self._link = Link(self._host, port, self._attempt, secrets.token_hex(32))
                arguments = (listening, self._link)
                name = "emberkeep-executor-functions"
                threading.Thread(target=self._accept, args=arguments, name=name, daemon=True).start()
            return self._link

    def instances(self) -> list[str]:
        """Which instances there are, in words."""
        with self._changed:
            return [remote.place for remote in self._remotes]

    def call_all(self, method: str, *arguments: int) -> None:
        """Returns when every instance has done it. Raises UserFunctionFailed."""
        with self._changed:
            remotes = list(self._remotes)
        self._ask(remotes, method, list(arguments))

    def snapshot_state(self) -> dict[str, bytes]:
        """By function and number: of every instance, and those that nobody has. Raises UserFunctionFailed."""
        with self._changed:
            # At one moment: whose worker ends meanwhile answers by its farewell, and what it leaves is not among these.
            remotes = list(self._remotes)
            found = {name: list(states) for name, states in self._states().items()}
        answers = self._ask(remotes, "snapshot_state", [])
        self._snapshot = [(remote, [] if reply.state is None else [reply.state]) for remote, reply in answers]
        for remote, states in self._snapshot:
            found.setdefault(remote.name, []).extend(states)
        return {f"{name}{_SEPARATOR}{n}": state for name, states in found.items() for n, state in enumerate(states)}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """To those whose state the savepoint has. Raises UserFunctionFailed."""
        with self._changed:
            for remote, states in self._snapshot:
                remote.taken = states
            remotes = [remote for remote, _ in self._snapshot if not remote.is_gone]
        self._ask(remotes, "notify_checkpoint_complete", [checkpoint_id])

    def close(self) -> None:
        """Failures are logged: who does not answer ends with its executor."""
        with self._changed:
            remotes = list(self._remotes)
        try:
            self._ask(remotes, "close", [], _CLOSE_SECONDS)
        except UserFunctionFailed as error:
            log.warning("functions on executors could not be closed", reason=str(error))
        with self._changed:
            closed, self._remotes = self._remotes, []
            for remote in closed:
                remote.is_gone = True
        for remote in closed:
            remote.channel.close()

    # --- calls --------------------------------------------------------------------------------------------------------

    def _ask(
        self, remotes: list[_Remote], method: str, arguments: list[int], seconds: float | None = None
    ) -> list[tuple[_Remote, Reply]]:
        seconds = self._seconds if seconds is None else seconds
        with self._changed:
            self._numbers += 1
            number = self._numbers
        for remote in remotes:
            # Where that fails, whoever reads from it finds the farewell, or that it is gone.
            with suppress(EmberkeepError):
                remote.channel.send(Call(number=number, method=method, arguments=arguments))
        deadline = time.monotonic() + seconds
        answers = []
        for remote in remotes:
            reply = self._reply(remote, number, deadline)
            if reply is None:
                what = "was lost" if remote.is_gone else f"did not answer in {seconds:g} s"
                raise UserFunctionFailed(f"{method} of {remote.place}: it {what}", hint="ask again")
            if reply.error:
                raise UserFunctionFailed(f"{method} of {remote.place}: {reply.error}")
            answers.append((remote, reply))
        return answers

    def _reply(self, remote: _Remote, number: int, deadline: float) -> Reply | None:
        with self._changed:
            self._changed.wait_for(lambda: number in remote.replies or remote.is_gone, deadline - time.monotonic())
            return remote.replies.pop(number, remote.farewell)

    # --- connections --------------------------------------------------------------------------------------------------

    def _accept(self, listening: socket.socket, link: Link) -> None:
        while True:
            connection, _ = listening.accept()
            threading.Thread(
                target=self._serve, args=(connection, link), name="emberkeep-executor-function", daemon=True
            ).start()

    def _serve(self, connection: socket.socket, link: Link) -> None:
        try:
            channel, hello = recognise(connection, link)
            remote = self._joined(channel, hello)
        except EmberkeepError as error:
            log.warning("a worker was not let in", reason=str(error))
            connection.close()
            return
        try:
            welcome(channel, hello, link, remote.taken)
            while True:
                reply = channel.receive(Reply)
                if reply.number == 0:
                    self._left(remote, reply)
                    return
                with self._changed:
                    remote.replies = {reply.number: reply}
                    self._changed.notify_all()
        except EmberkeepError as error:
            self._gone(remote, error)

    def _joined(self, channel: Channel, hello: Hello) -> _Remote:
        with self._changed:
            if len(self._remotes) >= _MOST_INSTANCES:
                raise UserFunctionFailed(f"there are {_MOST_INSTANCES} instances already")
            remote = _Remote(channel, hello, self._states().pop(hello.name, []))
            self._remotes.append(remote)
        log.info("a function lives on an executor", function=remote.place, states=len(remote.taken))
        return remote

    def _left(self, remote: _Remote, reply: Reply) -> None:
        """Spark has let the worker go: its state waits for the next instance."""
        with self._changed:
            remote.farewell = reply
            self._remove(remote)
            if reply.error:
                log.error("an instance left without its state", function=remote.place, reason=reply.error)
            if reply.state is not None:
                self._states().setdefault(remote.name, []).append(reply.state)
        remote.channel.close()

    def _gone(self, remote: _Remote, error: EmberkeepError) -> None:
        with self._changed:
            if remote.is_gone:
                return
            self._remove(remote)
            self._states().setdefault(remote.name, []).extend(remote.taken)
        log.warning("an instance is gone", function=remote.place, reason=str(error))
        remote.channel.close()

    def _remove(self, remote: _Remote) -> None:
        remote.is_gone = True
        self._remotes = [other for other in self._remotes if other is not remote]
        self._changed.notify_all()

    def _states(self) -> dict[str, list[bytes]]:
        if self._kept is None:
            self._kept = {}
            for key, state in sorted(self._restored().items()):
                name, separator, _ = key.rpartition(_SEPARATOR)
                if separator:
                    self._kept.setdefault(name, []).append(state)
        return self._kept
