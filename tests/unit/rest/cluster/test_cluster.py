"""Overview, configuration, probes, shutdown; and how errors look on every route."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.base.errors import Fatal, RetryLater, UnknownOutcome
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_cluster import ClusterOverview
from tests.unit.rest.fake_gateway import job_id
from tests.unit.rest.server import Site


async def test_overview_counts_jobs_and_slots_under_flinks_names(site: Site) -> None:
    answer = await site.get("/v1/overview")

    body = answer.json()
    flink = {key: value for key, value in body.items() if key not in ("emberkeep", "flink-version", "flink-commit")}
    assert flink == {
        "taskmanagers": 2,
        "slots-total": 4,
        "slots-available": 1,
        "jobs-running": 1,
        "jobs-finished": 1,
        "jobs-cancelled": 0,
        "jobs-failed": 1,
        "taskmanagers-blocked": 0,
        "slots-free-and-blocked": 0,
    }
    extension = msgspec.json.decode(answer.body, type=ClusterOverview).emberkeep
    assert extension.epoch == 3
    assert extension.jobs_by_status[JobStatus.RUNNING] == 1
    assert (extension.driver_places_total, extension.driver_places_available) == (8, 7)


async def test_every_job_that_has_not_ended_counts_as_running(site: Site) -> None:
    site.gateway.change(job_id(1), status=JobStatus.RESTARTING)

    assert (await site.get("/v1/overview")).json()["jobs-running"] == 1


async def test_config_is_what_dashboards_ask_for(site: Site) -> None:
    body = (await site.get("/v1/config")).json()

    assert body["features"] == {"web-submit": False, "web-cancel": True}
    assert body["refresh-interval"] > 0


async def test_configuration_names_origins(site: Site) -> None:
    entries = {entry["key"]: entry for entry in (await site.get("/v1/jobmanager/config")).json()}

    assert entries["rest.port"] == {"key": "rest.port", "value": "8081", "origin": "default"}


async def test_delete_cluster_asks_the_process_to_end(site: Site) -> None:
    answer = await site.request("DELETE", "/v1/cluster")

    assert (answer.status, answer.json(), site.shutdowns) == (200, {}, [None])


async def test_probes(site: Site) -> None:
    for probe in ("leader", "liveness", "readiness"):
        assert (await site.get(f"/v1/{probe}")).status == 200, probe

    site.gateway.leading_epoch = 0
    assert (await site.get("/v1/leader")).status == 503
    assert (await site.get("/v1/liveness")).status == 200


async def test_readiness_is_refused_while_the_job_manager_cannot_answer(site: Site) -> None:
    site.gateway.refusal = RetryLater("the dispatcher is overloaded")

    assert (await site.get("/v1/readiness")).status == 503


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RetryLater("later", hint="soon"), 503),
        (UnknownOutcome("perhaps", hint="look"), 504),
        (Fatal("no space", hint="make room"), 500),
    ],
)
async def test_errors_of_the_job_manager_keep_their_meaning(site: Site, error: Fatal, status: int) -> None:
    site.gateway.refusal = error

    problem = (await site.get("/v1/jobs")).problem()

    assert (problem.status, problem.detail, problem.hint) == (status, error.message, error.hint)
    assert problem.errors == [f"{error.message} ({error.hint})"]


async def test_unknown_resources_and_methods(site: Site) -> None:
    unknown = await site.get("/v1/nothing")
    wrong = await site.request("POST", "/v1/overview")

    assert (unknown.status, unknown.problem().status) == (404, 404)
    assert (wrong.status, wrong.problem().status, wrong.headers["Allow"]) == (405, 405, "GET")


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v1/overview?x=1", "x"),
        ("/v1/jobs/zz", "jobid"),
        ("/v1/taskmanagers/-", "taskmanagerid"),
        (f"/v1/jobs/{job_id(1)}/exceptions?maxExceptions=many", "maxExceptions"),
        (f"/v1/jobs/{job_id(1)}/exceptions?maxExceptions=-1", "maxExceptions"),
        (f"/v1/jobs/{job_id(1)}/exceptions?maxExceptions=1&maxExceptions=2", "maxExceptions"),
    ],
)
async def test_bad_requests_name_the_field(site: Site, path: str, field: str) -> None:
    answer = await site.get(path)

    assert (answer.status, answer.problem().field) == (400, field)
