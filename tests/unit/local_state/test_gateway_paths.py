"""How a job's state is addressed at the gateway."""

from __future__ import annotations

import base64
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_paths import durable_location, gateway_address, gateway_uri, resolve
from emberkeep.local_state.model import StatePath

JOB = JobId("0123456789abcdef" * 2)
OTHER = JobId("f" * 32)
GATEWAY = gateway_address(encrypts=True)
OWN_ROOT = f"/shared/checkpoints/{JOB}"


def encoded(location: str) -> str:
    return base64.urlsafe_b64encode(location.encode()).decode().rstrip("=")


def path_of(uri: str) -> str:
    return uri.removeprefix(GATEWAY)


def test_what_lies_below_the_jobs_own_root_is_its_own() -> None:
    uri = gateway_uri(GATEWAY, JOB, f"file://{OWN_ROOT}/query-1/", OWN_ROOT)
    assert uri == f"{GATEWAY}/{JOB}/own/query-1"
    assert resolve(JOB, path_of(uri) + "/state/0/1/7.delta", OWN_ROOT) == StatePath(
        root=OWN_ROOT, name="query-1/state/0/1/7.delta"
    )
    assert gateway_uri(GATEWAY, JOB, OWN_ROOT, OWN_ROOT) == f"{GATEWAY}/{JOB}/own"


@pytest.mark.parametrize(
    ("location", "root"),
    [
        ("/data/cp", "/data/cp"),
        ("file:/data/cp", "/data/cp"),
        ("file:///data//cp/", "/data/cp"),
        ("file://localhost/data/a%20b", "/data/a b"),
        ("s3://bucket/some/prefix/", "s3://bucket/some/prefix"),
        ("GS://bucket", "gs://bucket"),
        ("/shared/checkpoints-other", "/shared/checkpoints-other"),
        (f"{OWN_ROOT}/größe", f"{OWN_ROOT}/größe"),
    ],
)
def test_a_location_of_the_script_becomes_one_part_of_the_path(location: str, root: str) -> None:
    uri = gateway_uri(GATEWAY, JOB, location, OWN_ROOT)
    assert uri == f"{GATEWAY}/{JOB}/at-{encoded(root)}"
    assert resolve(JOB, path_of(uri) + "/offsets/0", OWN_ROOT) == StatePath(root=root, name="offsets/0")


@pytest.mark.parametrize(
    "location",
    ["", "relative/path", "hdfs://nn/path", "file://elsewhere/path", "/a/../b", "s3://", "s3:/bucket", "/" + "x" * 2000,
     "s3:///bucket", "/a\0b", "http://localhost/x"],
)  # fmt: skip
def test_what_no_gateway_can_keep_is_refused(location: str) -> None:
    with pytest.raises(InvalidInput, match="cannot hold state"):
        gateway_uri(GATEWAY, JOB, location, OWN_ROOT)


@pytest.mark.parametrize("surrogate", [0xD800, 0xDFFF])
def test_a_location_that_is_not_utf_8_is_refused(surrogate: int) -> None:
    with pytest.raises(InvalidInput, match="not UTF-8"):
        gateway_uri(GATEWAY, JOB, f"/a{chr(surrogate)}", OWN_ROOT)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        f"/{JOB}",
        f"{JOB}/own/x",
        f"/{OTHER}/own/x",
        f"/{JOB}/own/../x",
        f"/{JOB}/own/a/./x",
        f"/{JOB}/owned/x",
        f"/{JOB}/at-/x",
        f"/{JOB}/at-!!!/x",
        f"/{JOB}/at-{encoded('/a')}=/x",
        f"/{JOB}/at-{encoded('/a/')}/x",
        f"/{JOB}/at-{encoded('a')}/x",
        f"/{JOB}/at-{encoded('/a/../b')}/x",
        f"/{JOB}/at-{encoded(OWN_ROOT)}/x",
        f"/{JOB}/at-{encoded(OWN_ROOT + '/q')}/x",
        f"/{JOB}/own/a\0b",
        f"/{JOB}/own/" + "a" * 5000,
        f"/{JOB}/at-_w/x",
    ],
)
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(InvalidInput):
        resolve(JOB, path, OWN_ROOT)


_NAMES = st.text(string.ascii_letters + string.digits + " %+:=ü._-", min_size=1, max_size=12).filter(
    lambda part: part not in (".", "..")
)


@given(
    root=st.lists(_NAMES, min_size=1, max_size=4),
    name=st.lists(_NAMES, max_size=4),
    scheme=st.sampled_from(["/", "s3://b/"]),
)
def test_every_location_comes_back(root: list[str], name: list[str], scheme: str) -> None:
    location = scheme + "/".join(root)
    uri = "/".join([gateway_uri(GATEWAY, JOB, location, OWN_ROOT), *name])
    assert resolve(JOB, path_of(uri), OWN_ROOT) == StatePath(root=location, name="/".join(name))
    assert durable_location(location) == location


@given(st.text(max_size=80))
def test_no_text_does_anything_but_resolve_or_be_refused(text: str) -> None:
    for path in (text, f"/{JOB}/own/{text}", f"/{JOB}/at-{text}"):
        try:
            found = resolve(JOB, path, OWN_ROOT)
        except InvalidInput:
            continue
        assert ".." not in found.name.split("/")
        assert not found.name.startswith("/")
