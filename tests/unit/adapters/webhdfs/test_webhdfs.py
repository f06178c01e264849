"""The WebHDFS port against clients that are none: whatever comes is answered or refused, and the next one is served."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from emberkeep.adapters.http.server import bind_port, serve_http
from emberkeep.adapters.webhdfs import work as gateway_work
from emberkeep.adapters.webhdfs.protocol import WebHdfs
from emberkeep.base.errors import Absent
from emberkeep.local_state.credential import caller_of, credential
from emberkeep.local_state.gateway_paths import gateway_uri
from emberkeep.local_state.model import StatePath
from emberkeep.protocol.encoding.hadoop_token import KIND, encode
from tests.campaign import examples
from tests.unit.taskmanager.state_gateway.state_gateways import DRIVER_OF, EXECUTOR, JOB, Node

SECRET = b"the node's"
OPERATIONS = (
    *("GETFILESTATUS", "GETFILELINKSTATUS", "LISTSTATUS", "LISTSTATUS_BATCH", "GETCONTENTSUMMARY"),
    *("GETHOMEDIRECTORY", "GETSERVERDEFAULTS", "OPEN", "CREATE", "MKDIRS", "RENAME", "SETPERMISSION", "SETTIMES"),
    *("DELETE", "APPEND", "TRUNCATE", "GETDELEGATIONTOKEN", "", "open", "NONE"),
)
TIMEOUT = 120.0


class Port:
    """A gateway that is served on a loop in a thread."""

    def __init__(self, directory: Path) -> None:
        self.node = Node(directory)
        self.address = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._thread.start()
        assert self._ready.wait(TIMEOUT)

    async def _serve(self) -> None:
        port = bind_port("127.0.0.1", 0)
        self.address = port.address
        web = WebHdfs(self.node.gateway, lambda text: caller_of(SECRET, text), f"http://{port.address}")
        server = await serve_http(web.application(), port)
        self._ready.set()
        await self._stop.wait()
        await server.close()
        web.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def ask(self, method: str, target: str, body: bytes | None = None) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=TIMEOUT)
        try:
            connection.request(method, target, body)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def upload(self, name: str, data: bytes) -> int:
        """As Hadoop's client does it: to where it is sent."""
        status, headers, _ = self.ask("PUT", target(name, "CREATE", "&overwrite=true"))
        assert status == 307
        location = headers["Location"].removeprefix(f"http://{self.address}")
        return self.ask("PUT", location, data)[0]

    def content(self, name: str, more: str = "", **shown: str) -> tuple[int, bytes]:
        """What a file holds, or why not: from where the client is sent."""
        status, headers, body = self.ask("GET", target(name, "OPEN", more, **shown))
        if status != 307:
            return status, body
        assert body == b""
        status, _, body = self.ask("GET", headers["Location"].removeprefix(f"http://{self.address}"))
        return status, body


def target(name: str, operation: str, more: str = "", shown: str = credential(SECRET, EXECUTOR)) -> str:
    return f"/webhdfs/v1/{JOB}/own/{quote(name)}?op={operation}&delegation={encode(shown, KIND, '127.0.0.1:1')}{more}"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    port = Port(tmp_path_factory.mktemp("webhdfs"))
    try:
        yield port
    finally:
        port.close()


def test_no_answer_has_a_content_type(port: Port) -> None:
    assert port.upload("d/f", b"content") == 201
    for method, operation, wanted in (
        ("GET", "GETFILESTATUS", 200),
        ("GET", "OPEN", 307),
        ("GET", "LISTSTATUS", 200),
        ("GET", "OPEN&step=data", 200),
        ("PUT", "CREATE", 307),
        ("GET", "NONE", 400),
    ):
        status, headers, _ = port.ask(method, target("d/f", operation))
        assert status == wanted
        assert "Content-Type" not in headers


def test_the_credential_is_taken_as_token_and_as_user(port: Port) -> None:
    port.upload("d/f", b"content")
    shown = credential(SECRET, DRIVER_OF[1])
    assert port.content("d/f", shown=shown) == (200, b"content")
    assert port.ask("GET", f"/webhdfs/v1/{JOB}/own/d/f?op=OPEN&step=data&user.name={shown}")[2] == b"content"
    for wrong in (f"&user.name={shown[:-1]}", "&user.name=root", ""):
        status, _, body = port.ask("GET", f"/webhdfs/v1/{JOB}/own/d/f?op=OPEN{wrong}")
        assert status == 403
        assert json.loads(body)["RemoteException"]["exception"] == "AccessControlException"
        assert shown.rpartition(".")[2] not in body.decode()


@pytest.mark.req("SEC-15")
def test_refusals_are_logged_without_the_credential_and_ordinary_errors_are_not(tmp_path: Path) -> None:
    with capture_logs() as logs:
        port = Port(tmp_path)
        try:
            shown = credential(SECRET, EXECUTOR)
            wrong = f"{shown[:-4]}0000"
            for name in ("missing", "d"):
                port.ask("GET", target(name, "GETFILESTATUS"))
            port.ask("GET", target("d", "GETFILESTATUS", shown=wrong))
            port.ask("GET", target("d", "GETFILESTATUS").replace(f"/{JOB}/", f"/{'0' * 32}/"))
            for _ in range(20):
                port.ask("GET", f"/webhdfs/v1/{JOB}/own/d?op=OPEN")
        finally:
            port.close()
    refused = [line for line in logs if line["event"] == "refused a request"]
    assert [(line["action"], line["status"]) for line in refused[:2]] == [
        ("GET GETFILESTATUS", 403),
        ("GET GETFILESTATUS", 400),
    ]
    assert "does not belong to job" in refused[1]["reason"]
    assert len(refused) == 4, "three of a kind in a minute"
    assert shown.rpartition(".")[2][:-4] not in str(logs)


def test_a_part_of_a_file(port: Port) -> None:
    port.upload("d/f", b"0123456789")
    assert port.content("d/f", "&offset=3&length=4") == (200, b"3456")
    assert port.content("d/f", "&offset=10") == (200, b"")
    for wrong in ("&offset=11", "&offset=-1", "&offset=x", "&length=99999999999999999999"):
        assert port.content("d/f", wrong)[0] == 400


def test_what_the_first_request_of_an_open_has_asked_is_not_asked_again(port: Port) -> None:
    port.upload("d/once", b"content")
    assert port.content("d/once")[1] == b"content"
    port.node.durable.calls.clear()
    assert port.content("d/once") == (200, b"content")
    assert port.node.durable.calls == ["status d/once"]
    status, _, body = port.ask("GET", target("d/once", "OPEN", "&step=data&seen=%22of%20none%26%22"))
    assert (status, body) == (200, b"content")


def test_what_cannot_be_opened_is_told_before_the_client_is_sent_on(port: Port) -> None:
    port.upload("d/f", b"content")
    assert port.ask("GET", target("d/none", "OPEN"))[0] == 404
    assert port.ask("GET", target("d", "OPEN"))[0] == 404


def test_an_upload_that_is_cut_off_leaves_nothing(port: Port) -> None:
    host, _, number = port.address.partition(":")
    path = target("d/cut", "CREATE", "&overwrite=true&step=data")
    for body in (
        "Content-Length: 1000000\r\n\r\n" + "x" * 5000,
        "Transfer-Encoding: chunked\r\n\r\n1000\r\n" + "x" * 500,
        "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ):
        with socket.create_connection((host, int(number)), timeout=TIMEOUT) as client:
            client.sendall(f"PUT {path} HTTP/1.1\r\nHost: x\r\n{body}".encode())
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    assert port.ask("GET", target("d/cut", "GETFILESTATUS"))[0] == 404
    assert port.upload("d/cut", b"x" * 3_000_000) == 201
    assert port.content("d/cut") == (200, b"x" * 3_000_000)


def test_what_is_too_long_is_refused(port: Port) -> None:
    for junk in (target("x" * 5000, "GETFILESTATUS"), target("f", "OPEN", "&x=" + "y" * 20_000)):
        assert port.ask("GET", junk)[0] == 400
    assert port.upload("d/f", b"") == 201


def test_a_store_that_hangs_holds_up_nobody_who_uses_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_work, "_PATIENCE", 0.5)
    port = Port(tmp_path / "place")
    goes_on = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.callback(port.close)
        clients = stack.enter_context(ThreadPoolExecutor(200))
        stack.callback(goes_on.set)
        assert port.upload("d/f", b"content") == 201
        elsewhere = str(tmp_path / "elsewhere")
        with pytest.raises(Absent):
            port.node.gateway.status(DRIVER_OF[1], StatePath(root=elsewhere, name="g"))  # the driver uses it first
        hanging = port.node._open(elsewhere)
        hanging.before = lambda _: goes_on.wait()  # type: ignore[assignment]
        uri = gateway_uri("webhdfs://localhost", JOB, elsewhere, str(port.node.place / JOB)).removeprefix(
            "webhdfs://localhost"
        )
        token = encode(credential(SECRET, EXECUTOR), KIND, "127.0.0.1:1")
        asked = f"/webhdfs/v1{uri}/g?op=GETFILESTATUS&delegation={token}"
        opened = asked.replace("GETFILESTATUS", "OPEN&step=data")
        answers = [clients.submit(port.ask, "GET", each) for each in [asked, opened] * 80]
        refused, waited = 160 - 32, []
        for answer in as_completed(answers, TIMEOUT):
            waited.append(answer.result())
            if len(waited) == refused:
                break
        # All threads that this store may have are held by it, and the others of its clients were told to come again.
        assert all(status == 503 and b"RetriableException" in body for status, _, body in waited)
        assert port.content("d/f") == (200, b"content")
        assert port.upload("d/g", b"x" * 2_000_000) == 201
        assert port.ask("GET", target("d", "LISTSTATUS"))[0] == 200
        goes_on.set()
        found = [answer.result(TIMEOUT)[0] for answer in answers]
        assert sorted(found) == [404] * 32 + [503] * refused
        assert port.ask("GET", asked)[0] == 404


_TEXT = st.text(max_size=30)
_NAMES = st.one_of(st.sampled_from(["d/f", "d", "", "none", "..", "d/../..", ".attempts/1", "a//b"]), _TEXT)
_PARAMETERS = st.dictionaries(
    st.sampled_from(
        ["offset", "length", "overwrite", "recursive", "destination", "renameoptions", "step", "permission", "op"]
    ),
    st.one_of(_TEXT, st.integers().map(str), st.sampled_from(["true", "false", "NONE", f"/{JOB}/own/d/g", "data"])),
    max_size=4,
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "PATCH"]),
    prefix=st.sampled_from([f"/webhdfs/v1/{JOB}/own/", f"/webhdfs/v1/{JOB}/at-", "/webhdfs/v1/", "/webhdfs/v1", "/"]),
    name=_NAMES,
    operation=st.sampled_from(OPERATIONS),
    parameters=_PARAMETERS,
    known=st.booleans(),
    body=st.binary(max_size=100),
)
def test_no_request_is_answered_with_a_crash(
    port: Port,
    method: str,
    prefix: str,
    name: str,
    operation: str,
    parameters: dict[str, str],
    known: bool,
    body: bytes,
) -> None:
    query = "".join(f"&{key}={quote(value, errors='replace')}" for key, value in parameters.items())
    shown = credential(SECRET, EXECUTOR) if known else name
    url = f"{prefix}{quote(name, errors='replace')}?op={operation}&user.name={quote(shown, errors='replace')}{query}"
    status, _, answer = port.ask(method, url, body)
    assert status in (200, 201, 307, 400, 403, 404, 405)
    if status in (400, 403) and answer.startswith(b"{"):
        assert json.loads(answer)["RemoteException"]["javaClassName"].rpartition(".")[2]
    assert not set(port.node.place.iterdir()) - {port.node.place / JOB, port.node.place / "disks"}
