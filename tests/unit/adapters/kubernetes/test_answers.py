"""What the answers of an API server mean: a small HTTP server gives them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from emberkeep.adapters.kubernetes.api import KubernetesApi
from emberkeep.base.errors import EmberkeepError, RetryLater, Unavailable, UnknownOutcome

_PODS = b'{"items": []}'
_CONFIG = """
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
clusters: [{{name: here, cluster: {{server: "{server}", insecure-skip-tls-verify: true}}}}]
users: [{{name: me, user: {user}}}]
"""
# Counts its calls in a file, and gives the first line of another file as the token, or what that file's name says.
_PLUGIN = """#!/bin/sh
echo >> {here}/calls
if [ -e {here}/hangs ]; then echo $$ > {here}/pid; sleep 1000; fi
if [ -e {here}/fails ]; then echo no route to the issuer >&2; exit 1; fi
printf '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", '
printf '"status": %s}}' "$(cat {here}/status)"
"""


class Server(ThreadingHTTPServer):
    """``answer``: to everything that has the ``token``, if one is needed."""

    def __init__(self) -> None:
        self.answer = (200, _PODS)
        self.token = ""
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _reply(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        is_known = not self.server.token or self.headers["Authorization"] == f"Bearer {self.server.token}"
        code, body = self.server.answer if is_known else (401, b'{"message": "Unauthorized"}')
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _reply  # noqa: N815 - names of http.server

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def api_of(tmp_path: Path, server: Server, user: str = "{token: t}", scheme: str = "http") -> KubernetesApi:
    path = tmp_path / "config"
    path.write_text(_CONFIG.format(server=f"{scheme}://127.0.0.1:{server.server_port}", user=user))
    return KubernetesApi("spark", str(path), "", timeout=2.0)


def outcomes(api: KubernetesApi) -> dict[str, EmberkeepError]:
    """What each call raises."""
    calls: dict[str, Callable[[], object]] = {
        "pods": lambda: api.pods("a=b"),
        "nodes": api.nodes,
        "create": lambda: api.create_pod({}),
        "delete": lambda: api.delete_pod("p", "u", 1),
    }
    found = {}
    for name, call in calls.items():
        with pytest.raises(EmberkeepError) as caught:
            call()
        found[name] = caught.value
    return found


@pytest.mark.parametrize("answer", [(201, b"<html>"), (200, b'{"metadata": '), (200, b"[]")])
def test_a_change_whose_answer_cannot_be_used_may_have_happened(
    tmp_path: Path, server: Server, answer: tuple[int, bytes]
) -> None:
    server.answer = answer
    found = outcomes(api_of(tmp_path, server))
    assert {name: type(error) for name, error in found.items()} == {
        "pods": Unavailable,
        "nodes": Unavailable,
        "create": UnknownOutcome,
        "delete": UnknownOutcome,
    }
    assert all("cannot be used" in error.message for error in found.values())


def test_an_api_server_without_tls_refuses_nothing(tmp_path: Path, server: Server) -> None:
    found = outcomes(api_of(tmp_path, server, scheme="https"))
    assert [type(error) for error in found.values()] == [Unavailable, Unavailable, UnknownOutcome, UnknownOutcome]
    assert all("SSL" in error.message for error in found.values())


# --- credential plugins -----------------------------------------------------------------------------------------------


class Plugin:
    """The credential plugin of a user in ``here``. Give it a ``status`` first."""

    def __init__(self, here: Path) -> None:
        self.here = here
        program = here / "plugin"
        program.write_text(_PLUGIN.format(here=here))
        program.chmod(0o700)
        self.user = f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {program}}}}}"

    @property
    def calls(self) -> int:
        return len((self.here / "calls").read_text()) if (self.here / "calls").exists() else 0

    def gives(self, status: str) -> None:
        (self.here / "status").write_text(status)

    @contextlib.contextmanager
    def has(self, fault: str) -> Iterator[None]:
        """Let it have a fault for a while: "hangs" or "fails"."""
        (self.here / fault).touch()
        yield
        (self.here / fault).unlink()


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    plugin = Plugin(tmp_path)
    plugin.gives('{"token": "first"}')
    return plugin


def test_a_plugin_that_hangs_is_ended_and_asked_again_by_the_next_call(
    tmp_path: Path, server: Server, plugin: Plugin
) -> None:
    server.token = "first"
    with plugin.has("hangs"):
        api = api_of(tmp_path, server, plugin.user)
        assert plugin.calls == 0, "a term of leadership does not begin with it"
        api._source._plugin_seconds = 0.5
        with pytest.raises(Unavailable, match=r"plugin .* failed or took too long: .*124"):
            api.pods("a=b")
        assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
        with pytest.raises(Unavailable, match="took too long"):
            api.create_pod({})
    assert api.pods("a=b") == {"items": []}
    assert plugin.calls == 3


def test_the_words_of_a_plugin_that_fails_are_told(tmp_path: Path, server: Server, plugin: Plugin) -> None:
    api = api_of(tmp_path, server, plugin.user)
    with plugin.has("fails"), pytest.raises(Unavailable, match="no route to the issuer"):
        api.nodes()
    for status in ("{}", "null", '{"clientCertificateData": "without its key"}'):
        plugin.gives(status)
        with pytest.raises(Unavailable, match="neither a token nor a certificate"):
            api.nodes()


def test_a_plugin_is_asked_again_when_what_it_gave_has_expired_or_is_refused(
    tmp_path: Path, server: Server, plugin: Plugin
) -> None:
    server.token = "first"
    plugin.gives('{"token": "first", "expirationTimestamp": "2999-01-01T00:00:00Z"}')
    api = api_of(tmp_path, server, plugin.user)
    for _ in range(3):
        api.pods("a=b")
    assert plugin.calls == 1

    server.token = "second"
    plugin.gives('{"token": "second", "expirationTimestamp": "1999-01-01T00:00:00Z"}')
    with pytest.raises(RetryLater, match="Unauthorized"):
        api.pods("a=b")
    api.pods("a=b")
    assert plugin.calls == 2

    server.token = "third"
    plugin.gives('{"token": "third"}')
    api.pods("a=b")
    assert plugin.calls == 3


def test_a_file_that_is_damaged_later_is_read_again_until_it_is_well(tmp_path: Path, server: Server) -> None:
    api, file = api_of(tmp_path, server), tmp_path / "config"
    text = file.read_text()
    server.token = "new"
    with pytest.raises(RetryLater, match="Unauthorized"):
        api.pods("a=b")
    for damaged in ("users: [{user: 7}]", "{", ""):
        file.write_text(damaged)
        with pytest.raises(Unavailable, match="credentials for Kubernetes cannot be read"):
            api.pods("a=b")
    file.write_text(text.replace("{token: t}", "{token: new}"))
    assert api.pods("a=b") == {"items": []}


def test_a_token_that_was_replaced_in_the_file_is_read_again(tmp_path: Path, server: Server) -> None:
    server.token = "t"
    api = api_of(tmp_path, server)
    api.pods("a=b")
    server.token = "new"
    (tmp_path / "config").write_text((tmp_path / "config").read_text().replace("{token: t}", "{token: new}"))
    with pytest.raises(RetryLater, match="Unauthorized"):
        api.pods("a=b")
    assert api.pods("a=b") == {"items": []}
