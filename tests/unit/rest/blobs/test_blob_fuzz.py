"""The BLOB surface under fire, with hostile names and bodies: whatever comes in, nothing is left behind.

All examples come from fixed seeds, and their number is bounded.
"""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from emberkeep.blobs.model import BlobKey, BlobKind
from tests.campaign import examples
from tests.unit.rest.fake_gateway import job_id
from tests.unit.rest.served import CONTENT, OWNER, Served

KEY = BlobKey(kind=BlobKind.TRANSIENT, sha256=hashlib.sha256(CONTENT).hexdigest())
NUMBERS = itertools.count(1000)  # of jobs that no other example has
BOUNDED = settings(
    max_examples=examples(10),
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as directory:
        server = Served(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()


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
