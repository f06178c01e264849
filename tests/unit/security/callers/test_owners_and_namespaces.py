"""Jobs of others: submitters act on their own jobs, and identities with a namespace see no other's, on any route."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.identity import CLUSTER, Identity, Role
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import NO_JOB
from emberkeep.identities.job_access import may_act, sees
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.jobs import view_of_result
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.lifecycle.manifest import MANIFEST_NAME, encode_manifest
from emberkeep.rest.table import ROUTES, SHARED
from tests.unit.daemons.jobmanager.test_savepoint_disposal import EMPTY
from tests.unit.formats.golden_samples import RESULT
from tests.unit.rest.fake_gateway import FakeGateway, job_id, job_view, task_manager_view
from tests.unit.rest.jobs.test_submission import body
from tests.unit.rest.server import NoTokens, Site, running_site
from tests.unit.security.callers.test_roles import VALUES, served

pytestmark = [pytest.mark.anyio, pytest.mark.req("SEC-12")]

FLIGHTS, TRAINS, OPEN = job_id(1), job_id(2), job_id(3)
IDENTITIES = {
    "alice": Identity("alice", Role.SUBMITTER, "flights"),
    "bob": Identity("bob", Role.SUBMITTER, "trains"),
    "carol": Identity("carol", Role.SUBMITTER),
    "olga": Identity("olga", Role.OPERATOR),
    "otto": Identity("otto", Role.OPERATOR, "flights"),
    "vera": Identity("vera", Role.VIEWER, "trains"),
}


class TokenPerName(NoTokens):
    """Knows "token-of-alice" and so on."""

    def identify(self, credential: str) -> Identity | str:
        return IDENTITIES.get(credential.removeprefix("token-of-"), "")


def owned(job: JobId, name: str, owner: str, namespace: str) -> JobView:
    view = job_view(job, name)
    assert view.graph is not None
    pointer = SavepointPointer(path=f"/savepoints/{name}", trigger_id="0" * 32, created_ms=1, manifest_sha256="0" * 64)
    return msgspec.structs.replace(
        view,
        graph=msgspec.structs.replace(view.graph, owner=owner, namespace=namespace),
        pointers=JobPointers(attempt=1, savepoints=(pointer,)),
    )


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    gateway = FakeGateway()
    gateway.add(
        owned(FLIGHTS, "flights", "alice", "flights"),
        owned(TRAINS, "trains", "bob", "trains"),
        owned(OPEN, "open", "", ""),
    )
    gateway.add_task_managers(task_manager_view(2))
    async with running_site(tmp_path, gateway, tokens=TokenPerName()) as site:
        site.api.closing.set()
        site.api.own_logs.close()
        yield site


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer token-of-{name}"}


@pytest.mark.parametrize("name", ["alice", "otto"])
async def test_no_route_shows_or_changes_a_job_of_another_namespace(site: Site, name: str) -> None:
    reached = []
    below_a_job = [(method, pattern) for method, pattern in served(site) if "{jobid}" in pattern]
    assert len(below_a_job) > 20
    for method, pattern in below_a_job:
        path = re.sub(r"\{(\w+)[^}]*\}", lambda found: {**VALUES, "jobid": TRAINS}[found[1]], pattern)
        answer = await site.request(method, path, headers=bearer(name))
        hidden = answer.status == 404 and (method == "HEAD" or f"there is no job {TRAINS}" in answer.problem().detail)
        if not hidden and answer.status != 403:
            reached.append((method, pattern, answer.status))
    assert reached == []
    assert site.gateway.cancelled == []


async def test_each_route_of_the_whole_cluster_is_closed_to_a_namespace(site: Site) -> None:
    reached = []
    for method, pattern in served(site):
        if "{jobid}" in pattern or (method, pattern) in SHARED:
            continue
        path = re.sub(r"\{(\w+)[^}]*\}", lambda found: VALUES[found[1]], pattern)
        answer = await site.request(method, path, headers=bearer("otto"))
        if answer.status != 403:
            reached.append((method, pattern, answer.status))
    assert reached == []


async def test_what_belongs_to_no_job_is_closed_to_a_namespace(site: Site) -> None:
    """Pieces of the logs of all, and parts of messages between the cluster's processes."""
    reached = []
    for method, pattern in served(site):
        if "{jobid}/blobs" in pattern:
            path = re.sub(r"\{(\w+)[^}]*\}", lambda found: {**VALUES, "jobid": NO_JOB}[found[1]], pattern)
            answer = await site.request(method, path, headers=bearer("otto"))
            if answer.status != 403:
                reached.append((method, pattern, answer.status))
    assert reached == []


async def test_lists_show_the_jobs_of_the_callers_namespace(site: Site) -> None:
    for path in (
        "/v1/jobs",
        "/v1/jobs/overview",
        "/v1/overview",
        "/v1/savepoints",
        "/savepoints",
        "/",
        "/jobs",
        "/jobs?state=RUNNING",
    ):
        shown = (await site.get(path, headers=bearer("vera"))).body.decode()
        assert FLIGHTS not in shown, path
        assert OPEN not in shown, path
        if path != "/v1/overview":
            assert TRAINS in shown, path
    overview = (await site.get("/v1/overview", headers=bearer("vera"))).json()
    assert overview["jobs-running"] == 1


async def test_lists_can_be_narrowed_to_an_owner(site: Site) -> None:
    for path in ("/v1/jobs", "/v1/jobs/overview", "/jobs"):
        shown = (await site.get(f"{path}?owner=bob")).body.decode()
        assert (TRAINS in shown, FLIGHTS in shown) == (True, False), path
        assert TRAINS not in (await site.get(f"{path}?owner=bob", headers=bearer("alice"))).body.decode()


async def test_each_entry_names_its_owner(site: Site) -> None:
    jobs = (await site.get("/v1/jobs/overview")).json()["jobs"]
    found = {job["jid"]: (job["emberkeep"]["owner"], job["emberkeep"]["namespace"]) for job in jobs}
    assert found == {FLIGHTS: ("alice", "flights"), TRAINS: ("bob", "trains"), OPEN: ("", "")}
    assert (await site.get(f"/v1/jobs/{TRAINS}")).json()["emberkeep"]["owner"] == "bob"


@pytest.mark.parametrize("job", [FLIGHTS, OPEN])
async def test_a_submitter_changes_no_job_of_others(site: Site, job: JobId) -> None:
    changing = [route for route in ROUTES if "{jobid}" in route.path and route.role is Role.SUBMITTER]
    assert len(changing) > 5
    for route in changing:
        path = re.sub(r"\{(\w+)[^}]*\}", lambda found: {**VALUES, "jobid": job}[found[1]], route.full_path)
        answer = await site.request(route.method, path, headers=bearer("carol"))
        assert answer.status == 403, route
        owner = "'alice'" if job == FLIGHTS else "the cluster's own token"
        assert f"was submitted by {owner}; 'carol' has the role submitter" in answer.problem().detail
        assert "operator" in (answer.problem().hint or "")
    assert site.gateway.cancelled == []
    assert (await site.get(f"/v1/jobs/{job}", headers=bearer("carol"))).status == 200


@pytest.mark.parametrize("name", ["alice", "olga", "otto"])
async def test_the_owner_and_operators_may_change_a_job(site: Site, name: str) -> None:
    assert (await site.request("PATCH", f"/v1/jobs/{FLIGHTS}", headers=bearer(name))).status == 202
    assert site.gateway.cancelled == [(FLIGHTS, None)]


async def test_buttons_are_shown_to_those_who_may_use_them(site: Site) -> None:
    for name, shown in (("carol", False), ("alice", True), ("olga", True)):
        page = (await site.get(f"/jobs/{FLIGHTS}", headers=bearer(name))).body.decode()
        assert ('data-opens="cancel"' in page) is shown, name


async def test_a_job_belongs_to_whoever_submitted_it(site: Site) -> None:
    for name, expected in (("alice", ("alice", "flights")), ("carol", ("carol", "")), ("", ("", ""))):
        words = {"headers": bearer(name)} if name else {}
        new = body(artefacts=[], entry_point={"kind": "module", "name": "app"}, idempotency_key=f"k-{name}", jobid="")
        answer = await site.request("POST", "/v1/jobs", json=new, **words)
        assert answer.status == 202, answer.body
        view = site.gateway.views[JobId(answer.json()["jobid"])]
        assert (view.owner, view.namespace) == expected


async def test_who_sees_all_jobs_may_choose_a_namespace(site: Site) -> None:
    new = body(artefacts=[], entry_point={"kind": "module", "name": "app"}, jobid="", namespace="trains")

    refused = await site.request("POST", "/v1/jobs", json=new, headers=bearer("alice"))
    accepted = await site.request("POST", "/v1/jobs", json=new, headers=bearer("carol"))

    assert refused.status == 403
    assert "'alice' has the namespace 'flights' and cannot submit to 'trains'" in refused.problem().detail
    assert site.gateway.views[JobId(accepted.json()["jobid"])].namespace == "trains"
    invalid = await site.request("POST", "/v1/jobs", json={**new, "idempotency_key": "k2", "namespace": "a b"})
    assert (invalid.status, invalid.problem().field) == (400, "namespace")


async def test_a_repeated_submission_does_not_say_that_another_namespace_has_started_its_job(site: Site) -> None:
    graph = site.gateway.views[FLIGHTS].graph
    assert graph is not None
    blob = {"sha256": "0" * 64, "size": 1, "kind": "t"}
    new = {"jobid": FLIGHTS, "blob": blob, "idempotency_key": graph.idempotency_key}

    for name, status in (("alice", 202), ("bob", 424)):
        assert (await site.request("POST", "/v1/jobs", json=new, headers=bearer(name))).status == status, name


async def test_savepoints_of_another_namespace_are_closed(site: Site) -> None:
    new = body(artefacts=[], entry_point={"kind": "module", "name": "app"}, jobid="", savepoint="/savepoints/trains")
    requests: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("GET", "/v1/savepoints/manifest?path=/savepoints/trains", {}),
        ("POST", "/v1/savepoint-verification", {"json": {"savepoint-path": "/savepoints/trains"}}),
        ("POST", "/v1/jobs", {"json": new}),
    )
    for method, path, options in requests:
        refused = await site.request(method, path, headers=bearer("alice"), **options)
        assert refused.status == 403, path
        assert "is not a savepoint of a job in the namespace 'flights'" in refused.problem().detail
        assert (await site.request(method, path, headers=bearer("bob"), **options)).status != 403, path


@pytest.mark.parametrize(("made_for", "status"), [("0" * 32, 200), ("1" * 32, 403)])
async def test_a_driver_opens_no_savepoint_of_another_job_by_saying_that_it_made_it(
    site: Site, tmp_path: Path, made_for: str, status: int
) -> None:
    root = tmp_path / "savepoint"
    root.mkdir()
    (root / MANIFEST_NAME).write_bytes(encode_manifest(msgspec.structs.replace(EMPTY, trigger_id=made_for)))
    (claimed,) = site.gateway.views[FLIGHTS].pointers.savepoints
    claimed = msgspec.structs.replace(claimed, path=str(root))
    site.gateway.change(FLIGHTS, pointers=JobPointers(attempt=1, savepoints=(claimed,)))

    answer = await site.request("GET", f"/v1/savepoints/manifest?path={root}", headers=bearer("alice"))

    assert answer.status == status


async def test_a_job_whose_graph_cannot_be_read_is_closed_until_it_can_be(site: Site) -> None:
    site.gateway.change(FLIGHTS, graph=None, unreadable=True, waiting="its graph: the mount is away")

    for name in ("otto", "carol", "alice"):
        answer = await site.request("PATCH", f"/v1/jobs/{FLIGHTS}", headers=bearer(name))
        assert answer.status == 503
        assert "the mount is away" in answer.problem().detail
    assert (await site.request("PATCH", f"/v1/jobs/{FLIGHTS}", headers=bearer("olga"))).status == 202


def test_a_result_keeps_the_owner_of_its_job() -> None:
    job = view_of_result(msgspec.structs.replace(RESULT, owner="alice", namespace="flights"))
    assert (job.owner, job.namespace) == ("alice", "flights")
    assert sees(IDENTITIES["alice"], job)
    assert not sees(IDENTITIES["vera"], job)
    assert may_act(CLUSTER, job)
    assert not may_act(IDENTITIES["carol"], job)


@pytest.mark.parametrize("role", ["admin", "metrics"])
async def test_roles_for_the_whole_cluster_have_no_namespace(site: Site, role: str) -> None:
    new = {"name": "ci", "role": role, "namespace": "flights", "valid-for": 3_600_000}
    refused = await site.request("POST", "/v1/tokens", json=new)
    assert (refused.status, refused.problem().field) == (400, "namespace")
