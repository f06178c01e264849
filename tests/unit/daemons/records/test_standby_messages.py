"""What a task manager and a standby process say to each other, and bytes that are no such message."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberkeep.base.errors import Fatal
from emberkeep.daemons.records import standby_messages
from emberkeep.daemons.records.standby_messages import (
    Confirm,
    Import,
    Imported,
    Ready,
    StandbyMessage,
    Take,
    Taken,
    decode,
    encode,
    receive,
)
from tests.campaign import examples

TAKE = Take(environ={"A": "1", "LINES": "one\ntwo", "EMPTY": "", "Ä": "ü"}, directory="/w", arguments=("spec", "x y"))
IMPORT = Import(script="/w/job/a script.py", module="", places=("/w/job", "/w/job/lib.zip"))
MESSAGES: list[StandbyMessage] = [Ready(release="0.2.0"), IMPORT, Imported(packages=3), TAKE, Taken(), Confirm()]
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_each_message_arrives_as_one_line(message: StandbyMessage, ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    line = encode(message)
    assert line.index(b"\n") == len(line) - 1
    ours.sendall(line)
    assert receive(theirs) == message


@given(environ=st.dictionaries(TEXT, TEXT), directory=TEXT, arguments=st.lists(TEXT).map(tuple))
def test_any_order_is_read_as_it_was_written(
    environ: dict[str, str], directory: str, arguments: tuple[str, ...]
) -> None:
    order = Take(environ=environ, directory=directory, arguments=arguments)
    line = encode(order)
    assert line.count(b"\n") == 1
    assert decode(line) == order


def test_a_long_order_arrives_in_parts(ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    order = Take(environ={"LONG": "x" * 1_000_000}, directory="/", arguments=())
    sending = threading.Thread(target=ours.sendall, args=(encode(order),))
    sending.start()
    assert receive(theirs) == order
    sending.join()


@pytest.mark.parametrize("sent", [b"", b'{"type":"Taken"'], ids=["nothing", "half a message"])
def test_a_closed_channel_has_no_message(sent: bytes, ends: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = ends
    ours.sendall(sent)
    ours.close()
    assert receive(theirs) is None


def test_a_message_without_end_is_refused(
    monkeypatch: pytest.MonkeyPatch, ends: tuple[socket.socket, socket.socket]
) -> None:
    monkeypatch.setattr(standby_messages, "LONGEST", 1000)
    ours, theirs = ends
    ours.sendall(b"x" * 1001)
    with pytest.raises(Fatal, match="more than 1000 bytes"):
        receive(theirs)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"nonsense\n",
        b"[]\n",
        b"{}\n",
        b'{"type":"Unknown"}\n',
        b'{"type":"Ready"}\n',
        b'{"type":"Ready","release":1}\n',
        b'{"type":"Take","environ":{"A":1},"directory":"/","arguments":[]}\n',
        b'{"type":"Take","environ":{"A":"\xff"},"directory":"/","arguments":[]}\n',
        b'{"type":"Take","environ":{"A":"\\ud800"},"directory":"/","arguments":[]}\n',
        b"[" * 100_000 + b"\n",
        b'{"type":"Take","x":' + b"[" * 100_000 + b"\n",
    ],
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(Fatal, match="a message of a standby process cannot be read"):
        decode(line)


@settings(max_examples=examples(100))
@given(
    st.binary()
    | st.builds(
        lambda line, at, part: line[:at] + part + line[at:],
        st.sampled_from([encode(message) for message in MESSAGES]),
        st.integers(0, 60),
        st.binary(max_size=8),
    )
)
def test_hostile_bytes_are_a_message_or_refused(line: bytes) -> None:
    try:
        message = decode(line)
    except Fatal:
        return
    assert isinstance(message, StandbyMessage)


def test_a_message_of_another_release_may_have_other_fields() -> None:
    ready = msgspec.json.decode(encode(Ready(release="9.9.9")))
    assert decode(msgspec.json.encode({**ready, "later": [1]})) == Ready(release="9.9.9")
