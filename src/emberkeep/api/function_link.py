"""The protocol between an instance in a Python worker and the driver: connecting, authentication, messages.

The worker connects, and encrypts the connection if its link says so (EncryptedLink). Each side then proves that it has
the attempt's secret by a keyed hash over a nonce that the other side chose. A connection may break while both sides
live; the worker then reconnects as the same instance.

The previous release (version 1) cannot reconnect, and refuses a message with fields that it does not know. So a driver
marks its nonce, which that release accepts as it is, and a worker introduces itself in version 1 if there is no mark.
An instance whose connection to a side of version 1 breaks is lost.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import ssl
import time
from typing import NamedTuple

import msgspec

from emberkeep.api.encrypted_connection import Encryption, worker_context
from emberkeep.api.function_channel import Channel
from emberkeep.base.compatible import Compatible
from emberkeep.base.errors import Conflict, RetryLater

_SECONDS = 30.0  # for connecting, and for each piece of the driver's reply
_UNPROVEN_BYTES = 4096  # of a message from a peer that has not proven that it has the secret
_UNPROVEN_SECONDS = 10.0  # for such a message
VERSION = 2
WITHOUT_RETURN = 1  # the version in which an instance cannot reconnect
_MARK = "v2."  # prefix of the nonce of a driver that supports version 2
_TRIES = 3  # tries to join if the connection breaks
_PAUSE = 0.2  # seconds between tries
EXECUTOR_VARIABLE = "EMBERKEEP_EXECUTOR_ID"  # in the environment of executors, and so of their workers

# Numbers of replies that no call has asked for.
FAREWELL = 0  # the worker ends and sends its state; a Call of this number acknowledges it
NOT_BEGUN = -1  # the instance could not begin, and has taken no row


class Link(msgspec.Struct, frozen=True):
    """The endpoint of an attempt's driver. ``secret``: 64 hex digits."""

    host: str
    port: int
    attempt: int
    secret: str


class EncryptedLink(Link, frozen=True):
    """A link through TLS. ``certificate``: SHA-256 of the driver's certificate, in hex.

    The previous release knows only the fields of Link, so this is a separate class.
    """

    certificate: str


class Challenge(Compatible, frozen=True):
    nonce: str


class Hello(Compatible, frozen=True, kw_only=True):
    """A worker's introduction. ``proof``: hash over the driver's nonce.

    ``instance``: 32 hex digits, "" in version 1. ``executor``: its id in Spark; "" if unknown. ``again``: the instance
    was connected before, and its connection broke.
    """

    version: int
    attempt: int
    proof: str
    nonce: str
    name: str
    host: str
    pid: int
    instance: str = ""
    executor: str = ""
    again: bool = False


class Welcome(Compatible, frozen=True, kw_only=True):
    """The driver's reply. ``proof``: hash over the worker's nonce.

    ``states``: in version 1, the states that the instance begins with. ``more``: number of State messages that follow
    with these states in version 2. ``refused``: why the instance is refused.
    """

    proof: str
    states: list[bytes]
    more: int = 0
    refused: str = ""


class State(Compatible, frozen=True, kw_only=True):
    state: bytes


class FunctionCall(Compatible, frozen=True, kw_only=True):
    number: int
    method: str
    arguments: list[int] = msgspec.field(default_factory=list)


class Reply(Compatible, frozen=True, kw_only=True):
    """A worker's reply to a call, or its farewell. ``number``: the call's number, FAREWELL or NOT_BEGUN."""

    number: int
    error: str = ""
    state: bytes | None = None


class InstanceGivenUp(Conflict):
    """The driver counts this instance as lost."""


class Joined(NamedTuple):
    """The result of ``join_driver``.

    ``version``: the version that both sides speak. ``states``: the states that the instance begins with.
    """

    channel: Channel
    states: list[bytes]
    version: int


def join_driver(link: Link, name: str, instance: str, *, again: bool = False) -> Joined:
    """Connect a worker's instance to the driver.

    ``again``: the instance was connected before. Raises RetryLater, Conflict (not the driver of this attempt),
    InstanceGivenUp.
    """
    for _ in range(0 if again else _TRIES - 1):  # if an instance reconnects, its caller retries
        try:
            return _join(link, name, instance, again=again)
        except _HungUp:
            time.sleep(_PAUSE)
    return _join(link, name, instance, again=again)


def _join(link: Link, name: str, instance: str, *, again: bool) -> Joined:
    try:
        connection = socket.create_connection((link.host, link.port), _SECONDS)
    except OSError as error:
        raise RetryLater(f"cannot reach the driver at {link.host}:{link.port}: {error}") from error
    channel = Channel(connection)
    try:
        if isinstance(link, EncryptedLink):
            channel = Channel(connection, _encrypted(connection, link))
        nonce = secrets.token_hex(16)
        challenge = channel.receive(Challenge, largest=_UNPROVEN_BYTES, seconds=_SECONDS)
        version = VERSION if challenge.nonce.startswith(_MARK) else WITHOUT_RETURN
        hello = Hello(
            version=version,
            attempt=link.attempt,
            proof=_proof(link.secret, "worker", challenge.nonce),
            nonce=nonce,
            name=name,
            host=socket.gethostname(),
            pid=os.getpid(),
        )
        if version > WITHOUT_RETURN:
            executor = os.environ.get(EXECUTOR_VARIABLE, "")
            hello = msgspec.structs.replace(hello, instance=instance, executor=executor, again=again)
        channel.send(hello)
        answer = channel.receive(Welcome)
        _check(answer, link, nonce)
        states = [*answer.states, *(channel.receive(State).state for _ in range(answer.more))]
        channel.settle()
    except RetryLater as error:
        channel.close()
        raise _HungUp(error.message, hint=error.hint) from error
    except BaseException:
        channel.close()
        raise
    return Joined(channel, states, version)


def _encrypted(connection: socket.socket, link: EncryptedLink) -> Encryption:
    """Encrypt the connection before anything is sent. Raises RetryLater, Conflict (not the driver of this attempt)."""
    encryption = Encryption(worker_context())
    encryption.begin(connection, _SECONDS)
    try:
        encryption.check(link.certificate)
    except Conflict as error:
        raise Conflict(f"{link.host}:{link.port} is not the driver of this attempt: {error.message}") from None
    return encryption


class _HungUp(RetryLater):
    """The connection has broken, or the driver does not reply."""


def _check(answer: Welcome, link: Link, nonce: str) -> None:
    """Check the driver's reply. Raises Conflict, InstanceGivenUp."""
    if not hmac.compare_digest(answer.proof.encode(), _proof(link.secret, "driver", nonce).encode()):
        raise Conflict(f"{link.host}:{link.port} is not the driver of this attempt")
    if answer.refused:
        raise InstanceGivenUp(answer.refused)


def recognise(connection: socket.socket, link: Link, context: ssl.SSLContext | None = None) -> tuple[Channel, Hello]:
    """Authenticate a worker that has connected to the driver; the worker then waits for ``welcome``.

    ``context``: of the driver's end of an encrypted link. Raises RetryLater, Conflict (not a worker of this attempt).
    """
    encryption = None if context is None else Encryption(context)
    if encryption is not None:
        encryption.begin(connection, _UNPROVEN_SECONDS)
    connection.settimeout(_SECONDS)
    channel, nonce = Channel(connection, encryption), f"{_MARK}{secrets.token_hex(16)}"
    channel.send(Challenge(nonce=nonce))
    hello = channel.receive(Hello, largest=_UNPROVEN_BYTES, seconds=_UNPROVEN_SECONDS)
    expected = _proof(link.secret, "worker", nonce)
    if (
        hello.version not in (WITHOUT_RETURN, VERSION)
        or hello.attempt != link.attempt
        or not hmac.compare_digest(hello.proof.encode(), expected.encode())
    ):
        raise Conflict(f"process {hello.pid} on {hello.host} is not a worker of attempt {link.attempt}")
    return channel, hello


def welcome(channel: Channel, hello: Hello, link: Link, states: list[bytes]) -> None:
    """Accept the worker and send it the states. Raises RetryLater; Fatal (a state is too large)."""
    proof = _proof(link.secret, "driver", hello.nonce)
    if hello.version == WITHOUT_RETURN:
        channel.send(Welcome(proof=proof, states=states))
    else:
        channel.send(Welcome(proof=proof, states=[], more=len(states)))
        for state in states:
            channel.send(State(state=state))
    channel.settle()


def refuse(channel: Channel, hello: Hello, link: Link, reason: str) -> None:
    """Refuse the worker. Raises RetryLater."""
    channel.send(Welcome(proof=_proof(link.secret, "driver", hello.nonce), states=[], refused=reason))


def _proof(secret: str, side: str, nonce: str) -> str:
    return hmac.new(bytes.fromhex(secret), f"{side} {nonce}".encode(), "sha256").hexdigest()
