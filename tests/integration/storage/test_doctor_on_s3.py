"""``emberkeep doctor`` on a store that speaks S3, with what stores lack, and with credentials that are missing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import obstore
import pytest

from emberkeep.cli.application import main
from emberkeep.daemons.probes import object_store as probe
from emberkeep.daemons.probes.object_store import try_object_store
from emberkeep.diagnosis.model import Severity
from emberkeep.diagnosis.object_store import ObjectStep, ObjectStoreFacts, object_store_findings
from tests.integration.s3_server import S3Server, s3_server

pytestmark = pytest.mark.integration

PLACE = "s3://doctor/blobs"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.request("PUT", "doctor")
        yield server


@pytest.fixture(autouse=True)
def environment(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


def steps(facts: ObjectStoreFacts) -> list[ObjectStep]:
    return [problem.step for problem in facts.problems]


def test_a_good_store_passes_and_nothing_stays(server: S3Server) -> None:
    assert try_object_store(PLACE, "blobs") == ObjectStoreFacts(location=PLACE, purpose="blobs")
    assert server.keys("doctor") == set()
    assert server.unfinished_uploads("doctor") == 0


class Lacking:
    """obstore, over a store that does not do what one function is asked for."""

    def __init__(self, name: str, instead: Any) -> None:
        self._name, self._instead = name, instead

    def __getattr__(self, name: str) -> Any:
        return self._instead if name == self._name else getattr(obstore, name)


def put_without_conditions(store: Any, path: str, data: Any, *, mode: str = "overwrite", **options: Any) -> Any:
    assert mode in ("overwrite", "create")
    return obstore.put(store, path, data, **options)


def put_once(store: Any, path: str, data: Any, **options: Any) -> Any:
    try:
        obstore.head(store, path)
    except FileNotFoundError:
        return obstore.put(store, path, data, **options)


def copy_without_conditions(store: Any, source: str, target: str, *, overwrite: bool) -> None:
    assert not overwrite
    obstore.copy(store, source, target)


@pytest.mark.parametrize(
    ("name", "instead", "step", "severity"),
    [
        ("put", put_without_conditions, ObjectStep.CREATE_ONCE, Severity.WARNING),
        ("copy", copy_without_conditions, ObjectStep.COPY_ONCE, Severity.WARNING),
        ("put", put_once, ObjectStep.REPLACE, Severity.ERROR),
        ("list", lambda *_, **__: [], ObjectStep.LIST, Severity.ERROR),
        ("head", lambda *_: {"size": 1}, ObjectStep.PARTS, Severity.ERROR),
        ("delete", lambda *_: None, ObjectStep.DELETE, Severity.ERROR),
    ],
)
def test_what_a_store_lacks_is_found(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, name: str, instead: Any, step: ObjectStep, severity: Severity
) -> None:
    monkeypatch.setattr(probe, "obstore", Lacking(name, instead))
    facts = try_object_store(PLACE, "blobs")
    assert step in steps(facts)
    assert {each.severity for each in object_store_findings(facts)} == {severity}
    for key in server.keys("doctor"):
        server.request("DELETE", f"doctor/{key}")


def test_a_bucket_that_does_not_exist_is_named(server: S3Server) -> None:
    (finding,) = object_store_findings(try_object_store("s3://nobody-made-it/x", "blob.storage.ha-directory"))
    assert finding.where == "s3://nobody-made-it/x (blob.storage.ha-directory)"
    assert finding.what.startswith("cannot write an object: the bucket does not exist")
    assert finding.fix == "create it, or correct the location"


class NoRole(BaseHTTPRequestHandler):
    """The service that gives a machine its role, on a machine without one."""

    def do_PUT(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name of the base class
        pass


def test_credentials_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with ThreadingHTTPServer(("127.0.0.1", 0), NoRole) as metadata:
        thread = threading.Thread(target=metadata.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", f"http://127.0.0.1:{metadata.server_port}")
        try:
            (finding,) = object_store_findings(try_object_store(PLACE, "blobs"))
        finally:
            metadata.shutdown()
            thread.join()
    assert finding.severity is Severity.ERROR
    assert finding.what == "cannot write an object: the environment has no credentials"
    assert finding.fix == "set the store's credentials in the environment of this process"


def test_a_location_that_is_malformed_is_not_repeated() -> None:
    (finding,) = object_store_findings(try_object_store("s3://key:secret@bucket/x", "blobs"))
    assert finding.severity is Severity.ERROR
    assert "secret@" not in finding.what + finding.where
    assert "s3://bucket/prefix" in finding.what


def test_the_command_tries_the_configured_stores(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "storage").mkdir()
    words = ["doctor", "--state-dir", str(tmp_path / "state"), "-D", "rest.port=0", "-o", "json"]
    places = {
        "high-availability.storageDir": str(tmp_path / "storage"),
        "blob.storage.ha-directory": PLACE,
        "execution.checkpointing.savepoint-dir": "hdfs://name/savepoints",
    }
    main([*words, *(word for key, place in places.items() for word in ("-D", f"{key}={place}"))])
    report = json.loads(capfd.readouterr().out)
    found = {each["where"]: each["severity"] for each in report["findings"] if each["check"] == "storage"}
    assert found[f"{PLACE} (blob.storage.ha-directory)"] == "ok"
    assert found["execution.checkpointing.savepoint-dir"] == "unknown"
