"""Durable stores that hang hold up neither a job that keeps its state elsewhere, nor themselves once they answer."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest

from emberkeep.local_state.gateway_paths import gateway_uri
from tests.integration.conditions import DEADLINE
from tests.integration.gateway_process import JOB, GatewayProcess, HadoopClient
from tests.integration.state.hanging_mounts import why_not

pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(why_not()), reason=why_not())]

STORES, REQUESTS = 4, 40  # to each store: more than it may have at once
BATCHES = 20


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    places = tuple(tmp_path / f"store-{number}" for number in range(STORES))
    for place in places:
        place.mkdir()
        (place / "known").write_bytes(b"content")
    gateway = GatewayProcess(tmp_path / "gateway", places)
    gateway.directory.mkdir()
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.kill()


@pytest.fixture
def client(gateway: GatewayProcess) -> Iterator[HadoopClient]:
    with gateway.client() as client:
        yield client


def status(gateway: GatewayProcess, place: Path) -> tuple[int, str]:
    """The code and the body of the answer about a file of an executor that is not the client's."""
    address = (gateway.directory / "address").read_text()
    path = gateway_uri("", JOB, str(place), str(gateway.own_root))
    url = f"https://{address}/webhdfs/v1{path}/known?op=GETFILESTATUS&user.name={gateway.credential(1)}"
    trusting = ssl.create_default_context(cafile=gateway.directory / "tm" / "gateway" / "gateway.pem")
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE, context=trusting) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.req("LOC-7")
def test_a_job_goes_on_beside_four_stores_that_hang(gateway: GatewayProcess, client: HadoopClient) -> None:
    managers = client.java.jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
    manager, directory = managers.create(client.path("query/offsets"), client.conf), "query/offsets"
    manager.mkdirs(client.path(directory))
    with ThreadPoolExecutor(STORES * REQUESTS) as others:
        try:
            asked = [others.submit(status, gateway, place) for place in gateway.hanging for _ in range(REQUESTS)]
            code, refusal = next(as_completed(asked, DEADLINE)).result()
            # The first is told to come again, so by now the stores have all the threads that they can get.
            assert (code, json.loads(refusal)["RemoteException"]["exception"]) == (503, "RetriableException")
            assert "earlier requests to it are still running" in refusal
            assert sum(not answer.done() for answer in asked) >= REQUESTS

            for batch in range(BATCHES):
                stream = manager.createAtomic(client.path(f"{directory}/{batch}"), False)
                stream.write(bytearray(b"%d" % batch))
                stream.close()
                assert client.read(f"{directory}/{batch}") == b"%d" % batch
            assert any(not answer.done() for answer in asked), "the stores still hang"
        finally:
            gateway.end_hanging()
    written = {path.name: path.read_bytes() for path in (gateway.own_root / directory).iterdir() if path.is_file()}
    assert written == {str(batch): b"%d" % batch for batch in range(BATCHES)}
    for place in gateway.hanging:
        assert status(gateway, place)[0] == 200, "a store that answers again is asked again"
