"""The BLOB surface under fire: requests that schemathesis makes from the OpenAPI document, and names and bodies of our
own making. Whatever comes in, what goes out is documented, and nothing is left behind.

All examples come from fixed seeds, and their number is bounded.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import tempfile
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from emberkeep.adapters.blobs.directory import DirectoryBlobs
from emberkeep.adapters.blobs.files import BlobFiles
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, BlobKind
from emberkeep.jobmanager.blobs.server import BlobServer
from emberkeep.rest.openapi import document
from emberkeep.rest.table import ROUTES
from tests.campaign import examples
from tests.support.memory_blobs import always_leads
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.server import TOKEN, running_site

CONTENT = b"content"
KEY = BlobKey(kind=BlobKind.TRANSIENT, sha256=hashlib.sha256(CONTENT).hexdigest())
OWNER = job_id(1)
NUMBERS = itertools.count(1000)  # of jobs that no other example has
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
BOUNDED = settings(
    max_examples=examples(20),
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class Served:
    """The application on loopback over a real BLOB server, in a thread of its own; ``directory`` holds both stores."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = ""
        self.blobs: BlobServer
        self._loop: asyncio.AbstractEventLoop
        self._done = asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="served")

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        gateway = FakeGateway()
        gateway.add(job_view(OWNER, "flights"))
        gateway.add_task_managers(task_manager_view(2))
        self.blobs = BlobServer(
            Configuration(),
            BlobFiles(self.directory / "local"),
            DirectoryBlobs(self.directory / "ha"),
            confirm=always_leads,
        )
        await self.blobs.open([OWNER], [])
        running = asyncio.create_task(self.blobs.run())
        async with running_site(self.directory, gateway, blobs=self.blobs) as site:
            self.address = site.base.removeprefix("http://")
            await self.blobs.store_bytes(OWNER, CONTENT, ["reader"])
            self._ready.set()
            await self._done.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def end(self, owner: JobId) -> None:
        """The job has ended; returns when the server knows it."""
        known = threading.Event()
        self._loop.call_soon_threadsafe(self.blobs.job_ended, owner)
        self._loop.call_soon_threadsafe(known.set)
        assert known.wait(60)

    def files(self) -> set[str]:
        """What both stores hold, and what lies beside them."""
        return {str(path.relative_to(self.directory)) for path in self.directory.rglob("*") if path.is_file()}

    def request(self, method: str, target: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """As it is: nothing quotes, follows or normalises."""
        connection = HTTPConnection(self.address, timeout=60)
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            own = {} if body is None else {"Content-Length": str(len(body)), "Content-Type": "application/octet-stream"}
            for name, value in {**AUTHORIZED, **own, **headers}.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as directory:
        server = Served(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()


# --- from the document ------------------------------------------------------------------------------------------------

SCHEMA = schemathesis.openapi.from_dict(msgspec.json.decode(msgspec.json.encode(document(ROUTES)))).include(tag="BLOBs")
OPERATIONS: list[Any] = [cast(Any, found).ok() for found in SCHEMA.get_all_operations()]
CASES = [
    pytest.param(operation, mode, id=f"{operation.label}-{mode.value}")
    for operation in OPERATIONS
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or operation.path_parameters or operation.query or operation.body
]
CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def test_the_document_has_the_whole_surface() -> None:
    assert {operation.label for operation in OPERATIONS} == {
        f"{route.method} {route.full_path}" for route in ROUTES if route.tag == "BLOBs"
    }


@pytest.mark.parametrize(("operation", "mode"), CASES)
def test_answers_are_as_documented(served: Served, operation: Any, mode: GenerationMode) -> None:
    @seed(20261120)
    @BOUNDED
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        answer = case.call(base_url=f"http://{served.address}", headers=AUTHORIZED, timeout=60, allow_redirects=False)
        if not (answer.status_code == 400 and answer.headers["content-type"][0].startswith("text/plain")):
            case.validate_response(answer, checks=CHECKS)  # else it was no HTTP, and aiohttp itself has refused it

    check()


# --- names ------------------------------------------------------------------------------------------------------------

NASTY = st.sampled_from(
    [
        "..", ".", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "..\\..", "%00", "p-%00", "p-", "t-", "~",
        "%2e%2e%2f" * 50, "A" * 4000, "p-" + "0" * 63, "p-" + "0" * 65, "p-" + "F" * 64, "q-" + "0" * 64, "%ff%fe",
        "p-" + "0" * 64 + "%0a", "p-" + "0" * 64 + "%2f..", "p-" + "0" * 64 + ".gz", "０" * 32, "٣" * 32,
    ]
)  # fmt: skip
NAMES = NASTY | st.text(min_size=1, max_size=80).map(lambda text: quote(text, safe="")) | st.just(str(KEY))
OWNERS = NASTY | st.text("0123456789abcdefABCDEF", min_size=31, max_size=33) | st.just(OWNER)
METHODS = st.sampled_from(["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"])


def as_ascii(text: str) -> str:
    return quote(text, safe="%-._~*/\\")


@pytest.mark.req("BLOB-1")
@seed(20261120)
@BOUNDED
@given(method=METHODS, owner=OWNERS, key=NAMES, tail=st.just("") | NAMES.map(lambda name: f"/holders/{name}"))
def test_names_lead_nowhere_but_to_blobs(served: Served, method: str, owner: str, key: str, tail: str) -> None:
    before = served.files()

    status, body = served.request(
        method,
        as_ascii(f"/v1/jobs/{owner}/blobs/{key}{tail}"),
        None if method in ("GET", "HEAD", "DELETE") else b"other bytes",
    )

    known = (owner, key) == (OWNER, str(KEY))
    assert status in {400, 404, 405, 409, 204} or (known and status in {200, 400}), (status, body)
    assert b"root:" not in body
    assert served.files() == before


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("BLOB-1")
@pytest.mark.req("BLOB-3")
@seed(20261120)
@BOUNDED
@given(
    kind=st.sampled_from(BlobKind),
    data=st.binary(max_size=200_000),
    flip=st.none() | st.integers(0, 10_000_000),
)
def test_an_upload_is_stored_exactly_when_its_hash_is_right(
    served: Served, kind: BlobKind, data: bytes, flip: int | None
) -> None:
    owner = job_id(next(NUMBERS))
    key = BlobKey(kind=kind, sha256=hashlib.sha256(data).hexdigest())
    path = f"/v1/jobs/{owner}/blobs/{key}"
    sent = bytearray(data)
    if flip is not None:
        sent.insert(flip % (len(sent) + 1), flip % 256)

    status, _ = served.request("PUT", path, bytes(sent))

    assert status == (201 if flip is None else 400)
    assert (str(key) in {Path(name).name for name in served.files()}) is (flip is None)
    got, body = served.request("GET", path)
    assert (got, body) == (200, data) if flip is None else got == 404
    if flip is None:
        served.end(owner)
        assert served.request("PUT", path, data)[0] == 409


@pytest.mark.parametrize(
    ("length", "status"),
    [
        ("-1", 400),
        ("x", 400),
        ("1e3", 400),
        ("9" * 30, 400),
        (str(2**62), 413),
        ("+5", 400),
        ("0x10", 400),
        ("5, 6", 400),
    ],
)
def test_absurd_lengths(served: Served, length: str, status: int) -> None:
    before = served.files()

    answer, _ = served.request("PUT", f"/v1/jobs/{OWNER}/blobs/{KEY}", None, **{"Content-Length": length})

    assert answer == status
    assert served.files() == before
