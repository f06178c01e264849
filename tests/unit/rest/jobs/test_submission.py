"""Submitting jobs: durable answer, idempotency, refusals that name the field."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobKey, transient
from emberkeep.jobs.model import JobStatus
from tests.unit.rest.fake_gateway import job_id
from tests.unit.rest.server import Site

JOB = "c0ffee" + "0" * 26
CONTENT = b"print('hello')\n"
SAVEPOINTS = "execution.checkpointing.savepoint-dir"
SHA = hashlib.sha256(CONTENT).hexdigest()
SCRIPT = {"role": "script", "name": "app.py", "sha256": SHA, "size": len(CONTENT)}
RESOURCES = {
    "driver_memory_mb": 512,
    "driver_overhead_mb": 384,
    "executors": 2,
    "executor_cores": 1,
    "executor_memory_mb": 1024,
    "executor_overhead_mb": 384,
}


def body(**changes: Any) -> dict[str, Any]:
    return {
        "name": "app",
        "entry_point": {"kind": "script", "name": "app.py"},
        "arguments": ["a", "b"],
        "artefacts": [SCRIPT],
        "spark_conf": {},
        "options": {},
        "working_directory": "/data",
        "resources": RESOURCES,
        "python": "3.11",
        "idempotency_key": "k1",
        "jobid": JOB,
        **changes,
    }


@pytest.fixture
async def uploaded(site: Site) -> Site:
    assert (await site.request("PUT", f"/v1/jobs/{JOB}/blobs/p-{SHA}", data=CONTENT)).status == 201
    return site


async def test_a_submission_is_accepted(uploaded: Site) -> None:
    answer = await uploaded.request("POST", "/v1/jobs", json=body())

    assert answer.status == 202
    reply = answer.json()
    assert (reply["created"], reply["jobid"]) == (True, JOB)
    view = uploaded.gateway.views[reply["jobid"]]
    assert view.graph is not None
    assert (view.name, view.graph.arguments, view.graph.idempotency_key) == ("app", ("a", "b"), "k1")
    assert (await uploaded.get(reply["jobUrl"])).json()["name"] == "app"


async def test_a_repeated_submission_starts_one_job(uploaded: Site) -> None:
    before = len(uploaded.gateway.views)

    first = await uploaded.request("POST", "/v1/jobs", json=body())
    second = await uploaded.request("POST", "/v1/jobs", json=body())

    assert (second.status, second.json()) == (202, {**first.json(), "created": False})
    assert len(uploaded.gateway.views) == before + 1


async def test_the_key_may_stand_in_the_header(uploaded: Site) -> None:
    plain = body(idempotency_key="")

    answer = await uploaded.request("POST", "/v1/jobs", json=plain, headers={"Idempotency-Key": "from-header"})

    graph = uploaded.gateway.views[answer.json()["jobid"]].graph
    assert graph is not None
    assert graph.idempotency_key == "from-header"


@pytest.mark.parametrize("header", [{}, {"Idempotency-Key": "other"}, {"Idempotency-Key": "with blank"}])
async def test_keys_that_are_missing_different_or_unusable_are_refused(uploaded: Site, header: dict[str, str]) -> None:
    key = "k1" if header.get("Idempotency-Key") == "other" else ""

    answer = await uploaded.request("POST", "/v1/jobs", json=body(idempotency_key=key), headers=header)

    assert (answer.status, answer.problem().field) == (400, "Idempotency-Key")


def changed_artefact(**changes: Any) -> dict[str, Any]:
    return body(artefacts=[{**SCRIPT, **changes}])


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (body(jobid=""), "jobid"),
        (body(jobid="0" * 32), "jobid"),
        (body(jobid="C0FFEE" + "0" * 26), "jobid"),
        (body(jobid="../" + "0" * 29), "jobid"),
        (body(name="  "), "name"),
        (body(name="a\x00b"), "name"),
        (body(name=7), "name"),
        (body(colour="red"), "colour"),
        (body(python="three"), "python"),
        (body(working_directory="data"), "working_directory"),
        (body(arguments=["ok", "a\x00"]), "arguments[1]"),
        (body(options={"bad key": "1"}), "options"),
        (body(options={SAVEPOINTS: "savepoints"}), f"options.{SAVEPOINTS}"),
        (body(options={SAVEPOINTS: "/" + "x" * 5_000}), f"options.{SAVEPOINTS}"),
        (body(options={"state.savepoints.dir": "s3:bucket"}), "options.state.savepoints.dir"),
        (body(spark_conf={"spark.x": "\x00"}), "spark_conf.spark.x"),
        (body(entry_point={"kind": "script", "name": "other.py"}), "entry_point.name"),
        (body(entry_point={"kind": "module", "name": "not a module"}), "entry_point.name"),
        (body(entry_point={"kind": "module", "name": "pkg.mod"}), "artefacts"),
        (body(entry_point={"kind": "jar", "name": "x"}), "entry_point.kind"),
        (body(resources={**RESOURCES, "executor_cores": 0}), "resources.executor_cores"),
        (body(resources={**RESOURCES, "executors": "two"}), "resources.executors"),
        (body(resources={**RESOURCES, "executor_resources": {"gpu": 2**70}}), "resources.executor_resources.gpu"),
        (body(resources={**RESOURCES, "driver_resources": {"gpu": 2**31}}), "resources.driver_resources.gpu"),
        (body(resources={**RESOURCES, "driver_resources": {"g\x00pu": 1}}), "resources.driver_resources"),
        (body(resources={key: 1 for key in RESOURCES if key != "executors"}), "resources.executors"),
        (changed_artefact(name="../app.py"), "artefacts[0].name"),
        (changed_artefact(name=".."), "artefacts[0].name"),
        (changed_artefact(name="x" * 256), "artefacts[0].name"),
        (changed_artefact(sha256=SHA.upper()), "artefacts[0].sha256"),
        (changed_artefact(size=1), "artefacts[0].size"),
        (changed_artefact(size=2**70), "artefacts[0].size"),
        (changed_artefact(fragment="x"), "artefacts[0].fragment"),
        (body(artefacts=[SCRIPT, {**SCRIPT, "role": "file", "sha256": "1" * 64}]), "artefacts[1].name"),
        (body(artefacts=[]), "entry_point.name"),
        (body(artefacts=[SCRIPT] * 1001), "artefacts"),
    ],
)
async def test_refusals_name_the_field(uploaded: Site, wrong: dict[str, Any], field: str) -> None:
    before = dict(uploaded.gateway.views)

    answer = await uploaded.request("POST", "/v1/jobs", json=wrong)

    assert (answer.status, answer.problem().field) == (400, field)
    assert answer.problem().detail
    assert uploaded.gateway.views == before


@pytest.mark.parametrize("place", ["", "/data/savepoints", "file:/data/savepoints", "s3://bucket/savepoints"])
async def test_savepoints_go_where_a_job_says(uploaded: Site, place: str) -> None:
    answer = await uploaded.request("POST", "/v1/jobs", json=body(options={SAVEPOINTS: place}))
    assert answer.status == 202


async def test_a_job_without_files_gets_an_id(site: Site) -> None:
    module = body(entry_point={"kind": "module", "name": "pkg.mod"}, artefacts=[], jobid="")

    answer = await site.request("POST", "/v1/jobs", json=module)

    assert answer.status == 202
    assert len(answer.json()["jobid"]) == 32


async def test_a_job_id_belongs_to_one_submission(uploaded: Site) -> None:
    assert (await uploaded.request("POST", "/v1/jobs", json=body())).status == 202

    assert (await uploaded.request("POST", "/v1/jobs", json=body(idempotency_key="k2"))).problem().status == 409


# --- off-loaded submissions -------------------------------------------------------------------------------------------


def reference(data: bytes, **changes: Any) -> dict[str, Any]:
    blob = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "kind": "t"}
    return {"jobid": JOB, "blob": blob, "idempotency_key": "k1", **changes}


def key_of(data: bytes) -> BlobKey:
    return transient(hashlib.sha256(data).hexdigest())


async def offload(site: Site, data: bytes) -> None:
    assert (await site.request("PUT", f"/v1/jobs/{JOB}/blobs/{key_of(data)}", data=io.BytesIO(data))).status == 201


@pytest.mark.req("BLOB-19")
async def test_an_offloaded_submission_is_read_and_given_back(uploaded: Site) -> None:
    data = msgspec.json.encode(body(options={"restart-strategy.type": "none"}, arguments=["x" * 5_000_000]))
    await offload(uploaded, data)

    answer = await uploaded.request("POST", "/v1/jobs", json=reference(data))

    assert answer.status == 202
    graph = uploaded.gateway.views[JobId(JOB)].graph
    assert graph is not None
    assert graph.arguments == ("x" * 5_000_000,)
    assert uploaded.blobs.kept[JobId(JOB)][key_of(data)].holders == set()


async def test_a_repeat_of_an_offloaded_submission_finds_the_job_also_when_it_has_ended(uploaded: Site) -> None:
    data = msgspec.json.encode(body())
    await offload(uploaded, data)
    first = await uploaded.request("POST", "/v1/jobs", json=reference(data))
    again = await uploaded.request("POST", "/v1/jobs", json=reference(data))
    uploaded.blobs.job_ended(JobId(JOB))
    uploaded.gateway.change(JobId(JOB), status=JobStatus.FINISHED)
    late = await uploaded.request("POST", "/v1/jobs", json=reference(data))
    foreign = await uploaded.request("POST", "/v1/jobs", json=reference(data, idempotency_key="k2"))

    assert first.json()["created"] is True
    assert again.json() == late.json() == {**first.json(), "created": False}
    assert (foreign.status, foreign.problem().field) == (424, "blob")


SENT = msgspec.json.encode(body())


@pytest.mark.parametrize(
    ("data", "changes", "field"),
    [
        (SENT, {"jobid": "0" * 32}, "jobid"),
        (SENT, {"idempotency_key": ""}, "Idempotency-Key"),
        (SENT, {"idempotency_key": "k2"}, "blob"),
        (SENT, {"blob": {**reference(SENT)["blob"], "kind": "p"}}, "blob.kind"),
        (SENT, {"blob": {**reference(SENT)["blob"], "size": 1}}, "blob.size"),
        (SENT, {"blob": {**reference(SENT)["blob"], "size": 2**40}}, "blob.size"),
        (SENT, {"blob": {**reference(SENT)["blob"], "size": -1}}, "blob.size"),
        (SENT, {"blob": {**reference(SENT)["blob"], "sha256": "../x"}}, "blob.sha256"),
        (SENT, {"blob": None}, "blob"),
        (SENT, {"colour": "red"}, "colour"),
        (msgspec.json.encode(body(jobid=str(job_id(78)))), {}, "blob"),
        (msgspec.json.encode(body(name=7)), {}, "name"),
        (b"{", {}, "body"),
        (b'{"name": "\xff"}', {}, "body"),
        (b"", {}, "body"),
    ],
)
async def test_what_is_wrong_with_an_offloaded_submission_is_named(
    uploaded: Site, data: bytes, changes: dict[str, Any], field: str
) -> None:
    before = dict(uploaded.gateway.views)
    await offload(uploaded, data)

    answer = await uploaded.request("POST", "/v1/jobs", json=reference(data, **changes))

    assert (answer.status, answer.problem().field) == (400, field)
    assert uploaded.gateway.views == before
    assert not uploaded.blobs.kept[JobId(JOB)][key_of(data)].holders


@pytest.mark.req("SAFE-12")
async def test_what_is_not_here_is_told_apart_from_what_is_wrong(uploaded: Site) -> None:
    """A leader that has just taken over has not what only the one before had."""
    before, elsewhere = dict(uploaded.gateway.views), {"jobid": str(job_id(77))}
    for refused, field in (
        (changed_artefact(sha256="0" * 64), "artefacts[0].sha256"),
        (reference(SENT), "blob"),
        (reference(SENT, **elsewhere), "blob"),
    ):
        answer = await uploaded.request("POST", "/v1/jobs", json=refused)
        assert (answer.status, answer.problem().field) == (424, field)
        assert "submit again" in (answer.problem().hint or "")
    assert uploaded.gateway.views == before


async def test_a_missing_field_is_named(uploaded: Site) -> None:
    incomplete = body()
    del incomplete["python"]

    assert (await uploaded.request("POST", "/v1/jobs", json=incomplete)).problem().field == "python"


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"name": "\xff"}', b"[]", b"null", b'"x"'])
async def test_bodies_that_are_no_submission(uploaded: Site, data: bytes) -> None:
    answer = await uploaded.request("POST", "/v1/jobs", data=data, headers={"Content-Type": "application/json"})

    assert (answer.status, answer.problem().field) == (400, "body")


async def test_other_kinds_of_bodies_are_refused(uploaded: Site) -> None:
    answer = await uploaded.request("POST", "/v1/jobs", data={"name": "form"})

    assert answer.problem().status == 415


async def test_too_large_bodies_are_refused(uploaded: Site) -> None:
    async def endless() -> Any:
        for _ in range(17):
            yield b" " * 1024**2

    announced = await uploaded.request(
        "POST", "/v1/jobs", data=io.BytesIO(bytes(17 * 1024**2)), headers={"Content-Type": "application/json"}
    )
    streamed = await uploaded.request("POST", "/v1/jobs", data=endless(), headers={"Content-Type": "application/json"})

    assert (announced.problem().status, streamed.problem().status) == (413, 413)


async def test_refusals_of_the_job_manager_reach_the_client(uploaded: Site) -> None:
    uploaded.gateway.refusal = RetryLater("10000 jobs wait or run already", hint="try again when some have ended")

    assert (await uploaded.request("POST", "/v1/jobs", json=body())).problem().status == 503
