"""The driver's side of functions on executors: their instances, calls to all of them, and states without an instance.

An instance whose connection breaks is *silent*: its worker may still run, with all its state. The driver waits until
the instance reconnects or its deadline passes. Only then is the instance lost, and another instance gets its last known
state. So a snapshot never omits an instance whose fate is unknown. If Spark loses or removes an executor, its instances
get a deadline even while their connections look intact: a node without power sends nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

import structlog

from emberkeep.api.function_channel import Channel
from emberkeep.api.function_link import (
    FAREWELL,
    NOT_BEGUN,
    FunctionCall,
    Hello,
    Link,
    Reply,
    refuse,
    welcome,
)
from emberkeep.base.errors import Conflict, EmberkeepError
from emberkeep.lifecycle.errors import UserFunctionFailed
from emberkeep.spark.functions.instance_losses import InstanceLosses
from emberkeep.spark.functions.remote_instance import InstanceContact, RemoteInstance
from emberkeep.spark.functions.waiting_states import WaitingStates, numbered
from emberkeep.spark.functions.worker_port import WorkerPort

log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 10.0  # time limit for closing all instances
_SILENT_SECONDS = 20.0  # a worker that still runs reconnects within this time
_FAREWELL_SECONDS = 10.0  # a worker hands over its state within this time after its executor has gone
_UNSEEN_LOOKS = 2  # consecutive checks without the executor: the first may have begun before it registered
_LOOK_SECONDS = 0.5
_MOST_INSTANCES = 4_096
_SNAPSHOT, _SHUTDOWN = "snapshot_state", "shutdown"


class ExecutorFunctions:
    """Registry of the instances on executors. There is one per driver process, and any thread may use it.

    For each instance, a thread reads from its connection. There are as many workers as cores.
    """

    def __init__(
        self,
        port: WorkerPort,
        restored: Callable[[], Mapping[str, bytes]],
        seconds: float = 600.0,
        silent_seconds: float = _SILENT_SECONDS,
        farewell_seconds: float = _FAREWELL_SECONDS,
    ) -> None:
        """Create the registry, without listening yet.

        - ``restored``: returns the states that the job's functions begin with, by instance.
        - ``seconds``: time limit for the replies of all instances to one call.
        - ``silent_seconds``: an instance whose connection breaks is lost unless it reconnects within this time.
        - ``farewell_seconds``: an instance whose executor has gone is lost unless it leaves within this time.
        """
        self._port = port
        self._seconds = seconds
        self._silent_seconds = silent_seconds
        self._farewell_seconds = farewell_seconds
        self._changed = threading.Condition()
        self._remotes: list[RemoteInstance] = []
        self._waiting = WaitingStates(restored)
        self._in_snapshot: list[RemoteInstance] = []  # instances whose state the newest snapshot contains
        self._losses = InstanceLosses()
        self._numbers = 0

    def link(self) -> Link:
        """Return the address to which workers connect; the first call starts listening. Raises OSError."""
        return self._port.open(self._serve)

    def instances(self) -> list[str]:
        """Return a text for each instance, including silent ones."""
        with self._changed:
            self._give_up_overdue()
            return [remote.place for remote in self._remotes]

    def names(self) -> set[str]:
        """Return the names of functions that have an instance, or a state that waits for one."""
        with self._changed:
            return self._waiting.names() | {remote.name for remote in self._remotes}

    def losses(self) -> list[str]:
        """Return a text for each lost instance that no complete savepoint has reported."""
        with self._changed:
            self._give_up_overdue()
            return self._losses.unreported()

    def call_all(self, method: str, *arguments: int) -> None:
        """Call a method of every instance; return when all have replied. Raises UserFunctionFailed."""
        self._ask(self._settled(), method, list(arguments))

    def snapshot_state(self) -> dict[str, bytes]:
        """Return the states of all instances, and the states that wait for an instance, by ``<function>@<number>``.

        Raises UserFunctionFailed.
        """
        self._settled()
        with self._changed:
            # Copy both under one lock: an instance that leaves from now on replies with its farewell, and the state
            # that it leaves behind must not be in `found` as well.
            remotes = list(self._remotes)
            found = self._waiting.all()
        answers = self._ask(remotes, _SNAPSHOT, [])
        for remote, reply in answers:
            found.setdefault(remote.name, []).extend(_states_in(reply))
        with self._changed:
            self._in_snapshot = [remote for remote, _ in answers]
            self._losses.snapshot_taken()
        return numbered(found)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the instances whose state the savepoint contains. Raises UserFunctionFailed."""
        with self._changed:
            self._losses.savepoint_complete()
            remotes = [remote for remote in self._in_snapshot if not remote.is_gone]
        self._ask(remotes, "notify_checkpoint_complete", [checkpoint_id])

    def close(self) -> None:
        """Close all instances; keep their last known states for instances in another SparkContext.

        Log failures: an instance that does not reply ends with its executor.
        """
        with self._changed:
            remotes = list(self._remotes)
        try:
            self._ask([remote for remote in remotes if not remote.is_silent], "close", [], _CLOSE_SECONDS)
        except UserFunctionFailed as error:
            log.warning("cannot close functions on executors", reason=str(error))
        with self._changed:
            closed, self._remotes = self._remotes, []
            for remote in closed:
                remote.contact = InstanceContact.GONE
                self._waiting.keep(remote.name, remote.taken)
        for remote in closed:
            remote.channel.close()

    # --- executors ----------------------------------------------------------------------------------------------------

    def executors_seen(self, executor_ids: Collection[str]) -> None:
        """Set a deadline for instances whose executor is missing from ``executor_ids`` in two consecutive calls.

        ``executor_ids``: the executors that are registered with Spark now.
        """
        with self._changed:
            for remote in self._remotes:
                if remote.executor in executor_ids or not remote.executor:
                    remote.note_seen()
                    continue
                remote.unseen += 1
                if remote.unseen >= _UNSEEN_LOOKS:
                    remote.set_deadline(time.monotonic() + self._farewell_seconds)
            self._give_up_overdue()

    def executor_removed(self, executor_id: str) -> None:
        """Set a deadline for the instances on an executor that Spark is removing."""
        with self._changed:
            for remote in self._remotes:
                if remote.executor == executor_id:
                    remote.set_deadline(time.monotonic() + self._farewell_seconds)

    # --- calls --------------------------------------------------------------------------------------------------------

    def _settled(self) -> list[RemoteInstance]:
        """Wait until each silent instance has reconnected or is lost; return all instances."""
        with self._changed:
            while True:
                self._give_up_overdue()
                if not any(remote.is_silent for remote in self._remotes):
                    return list(self._remotes)
                self._changed.wait(_LOOK_SECONDS)

    def _ask(
        self, remotes: list[RemoteInstance], method: str, arguments: list[int], seconds: float | None = None
    ) -> list[tuple[RemoteInstance, Reply]]:
        seconds = self._seconds if seconds is None else seconds
        with self._changed:
            self._numbers += 1
            call = FunctionCall(number=self._numbers, method=method, arguments=arguments)
            for remote in remotes:
                remote.asked = call
            reached = [
                remote for remote in remotes if remote.contact is InstanceContact.OPEN
            ]  # others get the call after the handshake
        for remote in reached:
            # If sending fails, the thread that reads from the instance gets its farewell, or finds the connection
            # broken.
            with suppress(EmberkeepError):
                remote.channel.send(call)
        deadline = time.monotonic() + seconds
        answers = []
        for remote in remotes:
            reply = self._reply(remote, call.number, deadline)
            if reply is None:
                what = "was lost" if remote.is_gone else f"did not answer within {seconds:g} s"
                raise UserFunctionFailed(f"{method} of {remote.place}: the instance {what}", hint="try again")
            if reply.error:
                raise UserFunctionFailed(f"{method} of {remote.place}: {reply.error}")
            answers.append((remote, reply))
        return answers

    def _reply(self, remote: RemoteInstance, number: int, deadline: float) -> Reply | None:
        with self._changed:
            while number not in remote.replies and not remote.is_gone and time.monotonic() < deadline:
                self._changed.wait(min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic())))
                self._give_up_overdue()
            return remote.replies.pop(number, remote.farewell)

    # --- connections --------------------------------------------------------------------------------------------------

    def _serve(self, channel: Channel, hello: Hello, link: Link) -> None:
        """Serve an instance until it leaves or its connection breaks. Raises what ``_let_in`` raises."""
        remote, states = self._let_in(channel, hello, link)
        try:
            welcome(channel, hello, link, states)
            self._welcomed(remote, channel)
            self._read_all(remote, channel)
        except EmberkeepError as error:
            self._broken(remote, channel, error)

    def _let_in(self, channel: Channel, hello: Hello, link: Link) -> tuple[RemoteInstance, list[bytes]]:
        """Admit a new or reconnecting instance. Return it and the states that it begins with.

        Raises Conflict if the instance was lost before it reconnected, UserFunctionFailed if there are too many.
        """
        with self._changed:
            self._give_up_overdue()
            known = next((one for one in self._remotes if hello.instance and one.instance == hello.instance), None)
            if known is None and not hello.again:
                joined = self._joined(channel, hello)
                return joined, joined.taken
            older = None if known is None else known.exchange(channel)
        if known is None or older is None:
            refuse(channel, hello, link, f"this instance of {hello.name} was lost: it reconnected too late")
            raise Conflict(f"{hello.name} in process {hello.pid} on {hello.host} was lost before it reconnected")
        older.close()
        log.info("a function on an executor has reconnected", function=known.place)
        # A known instance that joins as new has not begun: the reply to its first attempt was lost.
        return known, [] if hello.again else known.taken

    def _welcomed(self, remote: RemoteInstance, channel: Channel) -> None:
        """Mark the handshake complete, and send the unanswered call, which may not have arrived. Raises RetryLater."""
        with self._changed:
            if remote.is_gone or remote.channel is not channel:
                return  # it is lost, or has reconnected again
            remote.contact = InstanceContact.OPEN
            asked = remote.asked
            self._changed.notify_all()
        if asked is not None:
            channel.send(asked)

    def _read_all(self, remote: RemoteInstance, channel: Channel) -> None:
        """Read replies until the instance leaves. Raises RetryLater."""
        while True:
            reply = channel.receive(Reply)
            if reply.number == FAREWELL:
                self._left(remote, reply)
                with suppress(EmberkeepError):
                    channel.send(FunctionCall(number=FAREWELL, method="left"))
                channel.close()
                return
            if reply.number == NOT_BEGUN:
                self._not_begun(remote, reply)
                return
            with self._changed:
                if remote.asked is not None and remote.asked.number == reply.number:
                    if not reply.error:
                        _note_reply(remote, remote.asked.method, reply)
                    remote.asked = None
                    remote.replies = {reply.number: reply}
                self._changed.notify_all()

    def _joined(self, channel: Channel, hello: Hello) -> RemoteInstance:
        if len(self._remotes) >= _MOST_INSTANCES:
            raise UserFunctionFailed(
                f"this job has {_MOST_INSTANCES} instances of functions on executors already, the most possible"
            )
        remote = RemoteInstance(channel, hello, self._waiting.take(hello.name))
        self._remotes.append(remote)
        log.info("a function on an executor has connected", function=remote.place, states=len(remote.taken))
        return remote

    def _left(self, remote: RemoteInstance, reply: Reply) -> None:
        """Handle the farewell of an instance whose worker ends: keep its state for the next instance."""
        with self._changed:
            if remote.is_gone:
                return
            remote.farewell = reply
            if reply.error:
                self._lose(remote, f"it ended without handing over its state: {reply.error}")
                return
            self._remove(remote)
            if reply.state is not None:
                self._waiting.keep(remote.name, [reply.state])

    def _not_begun(self, remote: RemoteInstance, reply: Reply) -> None:
        log.warning("an instance failed to start", function=remote.place, reason=reply.error)
        with self._changed:
            if not remote.is_gone:
                self._remove(remote)
                self._waiting.keep(remote.name, remote.taken)
        remote.channel.close()

    def _broken(self, remote: RemoteInstance, channel: Channel, error: EmberkeepError) -> None:
        channel.close()
        with self._changed:
            if remote.is_gone or remote.channel is not channel:
                return  # the instance has already reconnected
            remote.contact = InstanceContact.SILENT
            remote.set_deadline(time.monotonic() + (self._silent_seconds if remote.comes_again else 0.0))
        log.warning("lost the connection to a function on an executor", function=remote.place, reason=str(error))

    def _give_up_overdue(self) -> None:
        now = time.monotonic()
        for remote in [remote for remote in self._remotes if remote.until is not None and now >= remote.until]:
            self._lose(remote, "it did not reconnect in time" if remote.is_silent else "its executor has ended")
            remote.channel.close()

    def _lose(self, remote: RemoteInstance, reason: str) -> None:
        self._remove(remote)
        self._waiting.keep(remote.name, remote.taken)
        self._losses.add(f"{remote.place}: {reason}")
        log.error(
            "an instance is lost, and the state that it had gathered since its last snapshot",
            function=remote.place,
            reason=reason,
        )

    def _remove(self, remote: RemoteInstance) -> None:
        remote.contact = InstanceContact.GONE
        self._remotes = [other for other in self._remotes if other is not remote]
        self._changed.notify_all()


def _note_reply(remote: RemoteInstance, method: str, reply: Reply) -> None:
    """Note what a reply without an error says about the state that the instance leaves to another one."""
    if method == _SNAPSHOT:
        remote.taken = _states_in(reply)
    elif method == _SHUTDOWN:
        remote.taken = []  # its work is final: no other instance continues it


def _states_in(reply: Reply) -> list[bytes]:
    return [] if reply.state is None else [reply.state]
