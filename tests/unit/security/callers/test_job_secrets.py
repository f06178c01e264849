"""A job's secrets reach its own processes, and nobody finds them in what is stored, sent, listed or started."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.configuration.layout import WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.preparation import Program, prepare, upload
from emberkeep.client.submission.secret_values import secret_values
from emberkeep.client.submission.spark_options import SparkOptions
from emberkeep.daemons.driver.secret_text import SecretText
from emberkeep.daemons.taskmanager.launching.starts import LaunchNode, ProcessStarts
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces
from emberkeep.jobs.job_secrets import LONGEST_SECRET, JobSecrets
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.protocol.encoding.wire import encode_message
from emberkeep.protocol.messages.executors import StartExecutor
from emberkeep.protocol.rest_submission import JobSubmission
from emberkeep.spark.java import JavaRuntime
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey
from tests.support.live_files import files_below
from tests.unit.rest.fake_gateway import FakeGateway
from tests.unit.rest.jobs.test_submission import JOB, body
from tests.unit.rest.server import TOKEN, Site, running_site
from tests.unit.taskmanager.agent_bench import start_driver

pytestmark = [pytest.mark.req("SEC-14")]

VALUE = "marker-hunter2-ä"
TOKEN_OF_NODES = "t" * 43


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with running_site(tmp_path, FakeGateway()) as running:
        yield running


def sealed(job_id: JobId, name: str = "DB_PASS") -> dict[str, str]:
    return JobSecrets(TOKEN_OF_NODES, os.urandom).seal(job_id, {name: VALUE})


# --- at rest ----------------------------------------------------------------------------------------------------------


def test_a_sealed_secret_opens_for_its_job_name_and_cluster_only() -> None:
    job, other = JobId("a" * 32), JobId("b" * 32)
    kept = sealed(job)
    assert VALUE not in str(kept)
    assert kept != sealed(job), "equal values do not look equal"
    assert JobSecrets(TOKEN_OF_NODES, os.urandom).open(job, kept) == {"DB_PASS": VALUE}
    changed = kept["DB_PASS"][:-4] + ("AAAA" if kept["DB_PASS"][-4:] != "AAAA" else "BBBB")
    for key, owner, text in [
        (TOKEN_OF_NODES, other, kept),
        (TOKEN_OF_NODES, job, {"DB_USER": kept["DB_PASS"]}),
        ("another token", job, kept),
        (TOKEN_OF_NODES, job, {"DB_PASS": changed}),
        (TOKEN_OF_NODES, job, {"DB_PASS": ""}),
        (TOKEN_OF_NODES, job, {"DB_PASS": "no Base64 ä"}),
    ]:
        with pytest.raises(Fatal, match="cannot decrypt the secret"):
            JobSecrets(key, os.urandom).open(owner, text)


# --- the command ------------------------------------------------------------------------------------------------------


def test_values_come_from_files_and_from_the_environment(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_text(f"{VALUE}\nsecond line\n")
    words = [f"API_KEY={key}", "DB_PASS"]
    assert secret_values(words, {"DB_PASS": VALUE}) == {"API_KEY": f"{VALUE}\nsecond line", "DB_PASS": VALUE}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["DB_PASS"], "no variable DB_PASS"),
        ([f"DB_PASS={VALUE}"], "cannot read the file of the secret DB_PASS"),
        (["KNOWN", "KNOWN"], "given twice"),
        (["SPARK_HOME"], "cannot be called SPARK_HOME"),
        (["EMBERKEEP_X"], "cannot be called"),
        (["1ST"], "not the name of a secret"),
        (["LONG"], f"1 to {LONGEST_SECRET} are allowed"),
        (["NUL"], "contains a NUL"),
        (["BYTES"], "is not UTF-8"),
    ],
)
def test_refusals_name_the_secret_and_never_its_value(words: list[str], message: str) -> None:
    environ = {"KNOWN": VALUE, "LONG": VALUE * LONGEST_SECRET, "NUL": f"{VALUE}\0", "BYTES": f"{VALUE}\udcff"}
    with pytest.raises(InvalidInput, match=message) as refused:
        secret_values(words, {**environ, "SPARK_HOME": VALUE, "EMBERKEEP_X": VALUE, "1ST": VALUE})
    assert VALUE not in str(refused.value)


# --- submission -------------------------------------------------------------------------------------------------------


async def test_the_job_manager_stores_a_sealed_secret_and_shows_nothing(site: Site, tmp_path: Path) -> None:
    answer = await site.request(
        "POST", "/v1/jobs", json=body(artefacts=[], entry_point=MODULE, secrets={"DB_PASS": VALUE})
    )
    assert answer.status == 202
    graph = site.gateway.views[JobId(JOB)].graph
    assert graph is not None
    assert VALUE not in str(graph)
    assert JobSecrets(TOKEN, os.urandom).open(graph.job_id, graph.secrets) == {"DB_PASS": VALUE}
    schema = json.loads((await site.get("/v1/openapi.json")).body)
    shown = [path.replace("{jobid}", JOB) for path, methods in schema["paths"].items() if "get" in methods]
    asked = [path for path in shown if "{" not in path and not path.endswith((f"{JOB}/events", "/stream"))]
    assert len(asked) > 10
    for path in asked:
        body_of = (await site.get(path)).body.decode("utf-8", "replace")
        assert VALUE not in body_of, path
        assert graph.secrets["DB_PASS"] not in body_of, path
    assert not [path for path in files_below(tmp_path) if VALUE.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    "secrets", [{"A=B": VALUE}, {"PATH": VALUE}, {"X": ""}, {"X": f"{VALUE}\0"}, {"X": 1}, [VALUE]]
)
async def test_the_job_manager_refuses_unusable_secrets_without_their_values(site: Site, secrets: Any) -> None:
    answer = await site.request("POST", "/v1/jobs", json=body(artefacts=[], entry_point=MODULE, secrets=secrets))
    assert answer.status == 400
    assert VALUE not in answer.body.decode()


async def test_secrets_of_a_large_submission_are_not_in_its_blob(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = prepare(
        Program(None, "package.module", ("x" * 100_000,)),
        SparkOptions(),
        {},
        {"DB_PASS": VALUE},
        offload_min_size=1000,
        secrets=["DB_PASS"],
    )
    async with RestClient(Endpoint(site.base, TOKEN)) as client:
        await client.submit(await upload(client, job, Silent()))
    graph = site.gateway.views[JobId(job.submission.jobid)].graph
    assert graph is not None
    assert JobSecrets(TOKEN, os.urandom).open(graph.job_id, graph.secrets) == {"DB_PASS": VALUE}
    assert not [path for path in files_below(tmp_path) if VALUE.encode() in path.read_bytes()]


async def test_a_blob_with_secrets_is_refused(site: Site) -> None:
    content = json.dumps(body(artefacts=[], entry_point=MODULE, secrets={"DB_PASS": VALUE})).encode()
    sha256 = hashlib.sha256(content).hexdigest()
    assert (await site.request("PUT", f"/v1/jobs/{JOB}/blobs/t-{sha256}", data=content)).status == 201
    reference = {"jobid": JOB, "blob": {"sha256": sha256, "size": len(content), "kind": "t"}, "idempotency_key": "k1"}
    answer = await site.request("POST", "/v1/jobs", json=reference)
    assert (answer.status, "not encrypted" in answer.problem().detail) == (400, True)


def test_a_job_manager_of_the_previous_release_accepts_a_job_without_secrets() -> None:
    sent = msgspec.json.decode(msgspec.json.encode(msgspec.convert(body(), JobSubmission)))
    assert "secrets" not in sent


# --- start ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def starts(tmp_path: Path) -> ProcessStarts:
    root = WorkingDirectory(tmp_path / "node")
    java = JavaRuntime(None, tmp_path / "java", 17)
    java.executable.touch()
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text(TOKEN_OF_NODES)
    return ProcessStarts(LaunchNode("tm", "127.0.0.1", root, token, java, Configuration()), ProcessPlaces(root), None)


def test_a_driver_gets_its_secrets_by_environment_alone(starts: ProcessStarts, tmp_path: Path) -> None:
    request = start_driver()
    graph = msgspec.structs.replace(request.graph, secrets=sealed(request.graph.job_id))
    request = msgspec.structs.replace(request, graph=graph)
    started = starts.driver(DriverKey(job_id=graph.job_id, attempt=1), request, ())
    assert started.environ["DB_PASS"] == VALUE
    assert VALUE not in str(started.argv)
    assert VALUE.encode() not in encode_message(request)
    assert not [path for path in files_below(tmp_path) if VALUE.encode() in path.read_bytes()]


def test_an_executor_gets_the_secrets_of_its_job_alone(starts: ProcessStarts) -> None:
    job = JobId("a" * 32)
    key = ExecutorKey(job_id=job, attempt=1, allocation_id=AllocationId("b" * 32), executor_id=ExecutorId("1"))

    def request(secrets: dict[str, str]) -> StartExecutor:
        return StartExecutor(
            job_id=job,
            attempt=1,
            allocation_id=key.allocation_id,
            executor_id=key.executor_id,
            driver_url="spark://driver",
            app_id="app-1",
            cores=1,
            heap_mb=100,
            java_options=(),
            extra_class_path="",
            environ={},
            auth_secret="",
            python_path=(),
            secrets=secrets,
        )

    started, _ = starts.executor(key, request(sealed(job)), ())
    assert started.environ["DB_PASS"] == VALUE
    assert VALUE not in str(started.argv)
    with pytest.raises(Fatal, match="cannot decrypt the secret 'DB_PASS'"):
        starts.executor(key, request(sealed(JobId("b" * 32))), ())


def test_an_exception_that_quotes_a_secret_is_reported_without_it() -> None:
    hidden = SecretText(["correct\nhorse battery", "", "abc"])
    failed = AttemptOutcome(
        exit_code=1, message="abc: correct", traceback="login('correct\nhorse battery') horse battery"
    )
    assert hidden.without(failed) == AttemptOutcome(
        exit_code=1, message="abc: ******", traceback="login('******') ******"
    )


MODULE = {"kind": "module", "name": "package.module"}


class Silent:
    def begin(self, files: int, size: int) -> None: ...

    def file(self, name: str) -> None: ...

    def sent(self, count: int) -> None: ...

    def end(self) -> None: ...
