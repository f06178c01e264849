"""Upgrades of jobs over HTTP: begin, look, cancel; every status, and every bad input."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import Conflict
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.job_secrets import JobSecrets
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_id
from tests.unit.rest.jobs.test_submission import body as submission
from tests.unit.rest.server import TOKEN, Answer, Site

OLD = job_id(1)
NEW = JobId("a" * 32)
UPGRADE = "0123456789abcdef" * 2


def request(**changes: Any) -> dict[str, Any]:
    return {"upgrade-id": UPGRADE, "submission": submission(jobid=NEW, idempotency_key=""), **changes}


async def begin(site: Site, **changes: Any) -> Answer:
    return await site.request("POST", f"/v1/jobs/{OLD}/upgrade", json=request(**changes))


async def test_an_upgrade_begins_with_both_versions(site: Site, gateway: FakeGateway) -> None:
    answer = await begin(site, batches=5, within=90_000, restarts=1, timeout=60_000)
    assert answer.status == 202
    shown = answer.json()
    assert (shown["phase"], shown["old-job"], shown["new-job"]) == ("STOPPING", OLD, NEW)
    assert (shown["batches"], shown["within"], shown["restarts"], shown["ended"]) == (5, 90_000, 1, -1)
    assert shown["text"] == f"stopping job {OLD[:8]} with a savepoint"
    ((job, wish),) = gateway.wishes
    assert (job, wish.new.job_id, wish.new.name, wish.limit_ms) == (OLD, NEW, "app", 60_000)
    old = gateway.views[OLD].graph
    assert old is not None
    assert wish.back.job_id == shown["back-job"] not in (OLD, NEW)
    assert (wish.back.name, wish.back.artefacts, wish.back.owner) == (old.name, old.artefacts, old.owner)


async def test_the_defaults(site: Site, gateway: FakeGateway) -> None:
    await begin(site)
    ((_, wish),) = gateway.wishes
    assert (wish.batches, wish.within_ms, wish.restarts, wish.target_directory, wish.limit_ms) == (3, 600_000, 2, "", 0)


async def test_the_old_jobs_secrets_are_there_for_the_way_back(site: Site, gateway: FakeGateway) -> None:
    box = JobSecrets(TOKEN, bytes)
    graph = gateway.views[OLD].graph
    assert graph is not None
    gateway.change(OLD, graph=msgspec.structs.replace(graph, secrets=box.seal(OLD, {"DB_PASS": "s3cret"})))
    answer = await begin(site, submission=submission(jobid=NEW, secrets={"NEW_PASS": "other"}))
    assert "s3cret" not in answer.body.decode()
    ((_, wish),) = gateway.wishes
    assert box.open(wish.back.job_id, wish.back.secrets) == {"DB_PASS": "s3cret"}
    assert box.open(NEW, wish.new.secrets) == {"NEW_PASS": "other"}


async def test_a_repeated_request_begins_nothing_more(site: Site, gateway: FakeGateway) -> None:
    first, second = await begin(site), await begin(site)
    assert (second.status, second.json()) == (202, first.json())
    assert len(gateway.wishes) == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"upgrade-id": "x"}, "upgrade-id"),
        ({"batches": 0}, "batches"),
        ({"restarts": -1}, "restarts"),
        ({"within": 0}, "within"),
        ({"timeout": 0}, "timeout"),
        ({"target-directory": "relative/path"}, "target-directory"),
        ({"submission": submission(jobid=NEW, savepoint="/s/1")}, "submission.savepoint"),
        ({"submission": submission(jobid="", artefacts=[], entry_point={"kind": "module", "name": "m"})},
         "submission.jobid"),
        ({"submission": submission(jobid=NEW, namespace="other")}, "submission.namespace"),
        ({"submission": submission(jobid=NEW, name=" ")}, "name"),
    ],
)  # fmt: skip
async def test_bad_input_names_the_field(site: Site, gateway: FakeGateway, changes: dict[str, Any], field: str) -> None:
    answer = await begin(site, **changes)
    assert (answer.status, answer.json()["field"]) == (400, field)
    assert gateway.wishes == []


async def test_a_refusal_is_passed_on(site: Site, gateway: FakeGateway) -> None:
    gateway.refusal = Conflict("job 1 is busy")
    assert (await begin(site)).status == 409


async def test_a_job_without_an_upgrade_and_an_unknown_one(site: Site) -> None:
    assert (await site.get(f"/v1/jobs/{OLD}/upgrade")).status == 404
    assert (await site.get(f"/v1/jobs/{'f' * 32}/upgrade")).status == 404
    assert (await site.request("DELETE", f"/v1/jobs/{OLD}/upgrade")).status == 404


async def test_its_end_is_shown_with_the_reason_and_in_the_job(site: Site, gateway: FakeGateway) -> None:
    await begin(site)
    step = {"phase": UpgradePhase.RETURNED, "reason": "it failed", "ended_ms": NOW_MS + 5, "savepoint": "/s/1"}
    gateway.upgrade_steps = [step]
    shown = (await site.get(f"/v1/jobs/{OLD}/upgrade")).json()
    assert (shown["phase"], shown["reason"], shown["ended"], shown["savepoint"]) == (
        "RETURNED", "it failed", NOW_MS + 5, "/s/1",
    )  # fmt: skip
    assert shown["text"].endswith("because it failed")
    details = (await site.get(f"/v1/jobs/{OLD}")).json()["emberkeep"]
    assert details["upgrade"]["upgrade-id"] == UPGRADE


async def test_a_cancellation_names_who_asked(site: Site) -> None:
    await begin(site)
    answer = await site.request("DELETE", f"/v1/jobs/{OLD}/upgrade")
    assert (answer.status, answer.json()["canceled-by"]) == (202, "someone")


async def test_the_savepoint_of_an_upgrade_is_not_deleted_while_it_goes_on(site: Site, gateway: FakeGateway) -> None:
    await begin(site)
    view = gateway.views[OLD].upgrade
    assert view is not None
    ongoing = msgspec.structs.replace(view.upgrade, savepoint="/s/1", phase=UpgradePhase.STARTING)
    gateway.change(OLD, upgrade=msgspec.structs.replace(view, upgrade=ongoing))
    assert "needs /s/1" in await disposal_failure(site)


async def test_its_savepoint_is_not_deleted_before_it_is_recorded_in_the_upgrade(
    site: Site, gateway: FakeGateway
) -> None:
    await begin(site)
    made = SavepointPointer(path="/s/1", manifest_sha256="ab" * 32, created_ms=NOW_MS, trigger_id=UPGRADE)
    gateway.change(OLD, pointers=JobPointers(savepoints=(made,)), status=JobStatus.FINISHED)
    assert "needs /s/1" in await disposal_failure(site)


async def disposal_failure(site: Site) -> str:
    asked = await site.request("POST", "/v1/savepoint-disposal", json={"savepoint-path": "/s/1"})
    trigger = asked.json()["request-id"]
    while True:
        state = (await site.get(f"/v1/savepoint-disposal/{trigger}")).json()
        if state["status"]["id"] == "COMPLETED":
            break
    return str(state["operation"]["failure-cause"]["stack-trace"])
