"""Stops, savepoints and their disposal over HTTP, in Flink's shape: every status, every bad input."""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emberkeep.base.errors import RetryLater, UnknownOutcome
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.model import JobStatus
from emberkeep.lifecycle.locations import is_same_place
from emberkeep.lifecycle.manifest import MANIFEST_NAME, Manifest, QuerySavepoint, SavepointFile, encode_manifest
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress, ProcedureRequest
from tests.unit.rest.fake_gateway import NOW_MS, FakeGateway, job_id
from tests.unit.rest.server import Answer, Site

JOB = job_id(1)
TRIGGER = "0123456789abcdef" * 2


async def post(site: Site, path: str, body: dict[str, Any]) -> Answer:
    headers = {"Content-Type": "application/json"}
    return await site.request("POST", f"/v1{path}", data=msgspec.json.encode(body), headers=headers)


def requested(gateway: FakeGateway, trigger_id: str = TRIGGER) -> ProcedureRequest:
    request = gateway.procedures[JOB, trigger_id].request
    assert request is not None
    return request


# --- asking -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "procedure"),
    [
        ("stop", {"drain": False, "targetDirectory": "/s"}, Procedure.SUSPEND),
        ("stop", {"drain": True, "targetDirectory": "/s", "formatType": "NATIVE"}, Procedure.DRAIN),
        ("savepoints", {"target-directory": "/s", "cancel-job": False}, Procedure.SAVEPOINT),
        ("savepoints", {"target-directory": "/s", "cancel-job": True, "formatType": "CANONICAL"}, Procedure.SUSPEND),
    ],
)
async def test_requests_in_flinks_shape(
    site: Site, gateway: FakeGateway, path: str, body: dict[str, Any], procedure: Procedure
) -> None:
    answer = await post(site, f"/jobs/{JOB}/{path}", {**body, "triggerId": TRIGGER, "timeout": 90_000})
    assert answer.status == 202
    extension = {"procedure": procedure.value, "target-directory": "/s", "deadline": NOW_MS + 90_000}
    assert answer.json() == {"request-id": TRIGGER, "emberkeep": extension}
    assert requested(gateway) == ProcedureRequest(
        trigger_id=TRIGGER,
        procedure=procedure,
        target_directory="/s",
        requested_ms=NOW_MS,
        deadline_ms=NOW_MS + 90_000,
    )


@pytest.mark.parametrize("path", ["stop", "savepoints"])
async def test_an_empty_request_gets_a_trigger_id_the_default_directory_and_a_deadline(
    site: Site, gateway: FakeGateway, path: str
) -> None:
    answer = (await post(site, f"/jobs/{JOB}/{path}", {})).json()
    assert answer["emberkeep"]["target-directory"] == "/default"
    assert answer["emberkeep"]["deadline"] == NOW_MS + 600_000
    assert requested(gateway, answer["request-id"]).target_directory == "/default"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("stop", {"targetDirectory": "relative/path"}, "targetDirectory"),
        ("stop", {"targetDirectory": ""}, "targetDirectory"),
        ("stop", {"targetDirectory": "/with\nbreak"}, "targetDirectory"),
        ("stop", {"targetDirectory": "/" + "x" * 5000}, "targetDirectory"),
        ("stop", {"targetDirectory": 7}, "targetDirectory"),
        ("stop", {"drain": "yes"}, "drain"),
        ("stop", {"triggerId": "short"}, "triggerId"),
        ("stop", {"formatType": "OTHER"}, "formatType"),
        ("stop", {"timeout": 0}, "timeout"),
        ("stop", {"timeout": -1}, "timeout"),
        ("stop", {"timeout": "90s"}, "timeout"),
        ("savepoints", {"timeout": 10**12}, "timeout"),
        ("stop", {"target-directory": "/s"}, "target-directory"),
        ("savepoints", {"target-directory": "relative"}, "target-directory"),
        ("savepoints", {"cancel-job": 1}, "cancel-job"),
        ("savepoints", {"triggerId": TRIGGER.upper()}, "triggerId"),
    ],
)
async def test_bad_input_is_named(
    site: Site, gateway: FakeGateway, path: str, body: dict[str, Any], field: str
) -> None:
    answer = await post(site, f"/jobs/{JOB}/{path}", body)
    assert (answer.status, answer.problem().field) == (400, field)
    assert not gateway.procedures


@pytest.mark.parametrize("path", ["stop", "savepoints"])
async def test_refusals(site: Site, gateway: FakeGateway, path: str) -> None:
    assert (await post(site, f"/jobs/{job_id(9)}/{path}", {})).status == 404
    assert (await post(site, f"/jobs/{job_id(2)}/{path}", {})).status == 409
    gateway.refusal = RetryLater("it does not lead")
    assert (await post(site, f"/jobs/{JOB}/{path}", {})).status == 503
    gateway.refusal = UnknownOutcome("no answer")
    assert (await post(site, f"/jobs/{JOB}/{path}", {})).status == 504


# --- how far it has come ----------------------------------------------------------------------------------------------


async def state(site: Site, gateway: FakeGateway, **view: Any) -> Any:
    request = ProcedureRequest(
        trigger_id=TRIGGER, procedure=Procedure.DRAIN, target_directory="/s", requested_ms=NOW_MS - 5_000
    )
    gateway.procedures[JOB, TRIGGER] = ProcedureView(
        **{"job_id": JOB, "trigger_id": TRIGGER, "request": request, **view}
    )
    return (await site.get(f"/v1/jobs/{JOB}/savepoints/{TRIGGER}")).json()


async def test_what_is_under_way_is_told_in_words_and_numbers(site: Site, gateway: FakeGateway) -> None:
    shown = await state(site, gateway, waiting="the end of the driver")
    assert (shown["status"], shown["operation"]) == ({"id": "IN_PROGRESS"}, None)
    own = shown["emberkeep"]
    assert (own["phase"], own["waiting"], own["duration"]) == (None, "the end of the driver", 5_000)
    progress = ProcedureProgress(
        trigger_id=TRIGGER,
        phase=ProcedurePhase.COPYING,
        detail="copying 212 of 300 files",
        files_done=212,
        files_total=300,
        bytes_done=12,
        bytes_total=20,
        started_ms=NOW_MS - 4_000,
    )
    own = (await state(site, gateway, progress=progress))["emberkeep"]
    assert (own["procedure"], own["phase"], own["detail"]) == ("DRAIN", "COPYING", "copying 212 of 300 files")
    assert (own["files-done"], own["files-total"], own["bytes-done"], own["bytes-total"]) == (212, 300, 12, 20)
    assert (own["requested"], own["started"], own["ended"]) == (NOW_MS - 5_000, NOW_MS - 4_000, -1)
    assert own["job-status"] == "RUNNING"


async def test_an_end_has_a_location_or_a_failure(site: Site, gateway: FakeGateway) -> None:
    done = await state(site, gateway, is_over=True, savepoint="/s/savepoint-1", manifest_sha256="ab" * 32)
    assert (done["status"]["id"], done["operation"]) == ("COMPLETED", {"location": "/s/savepoint-1"})
    failed = await state(site, gateway, is_over=True, failure="/s: no space left")
    assert failed["status"]["id"] == "COMPLETED"
    cause = failed["operation"]["failure-cause"]
    assert (cause["class"], cause["stack-trace"]) == ("ProcedureFailed", "/s: no space left")
    assert b"/s: no space left" in base64.b64decode(cause["serialized-throwable"]), "which Flink's client reads"
    assert failed["emberkeep"]["phase"] == "FAILED"
    waiting = await state(site, gateway, savepoint="/s/savepoint-1")  # its script has not ended
    assert (waiting["status"]["id"], waiting["emberkeep"]["phase"]) == ("IN_PROGRESS", "COMPLETED")


async def test_an_unknown_one_is_404_and_a_bad_id_400(site: Site) -> None:
    assert (await site.get(f"/v1/jobs/{JOB}/savepoints/{TRIGGER}")).status == 404
    answer = await site.get(f"/v1/jobs/{JOB}/savepoints/xyz")
    assert (answer.status, answer.problem().field) == (400, "triggerid")


async def test_the_job_shows_what_it_does_on_request(site: Site, gateway: FakeGateway) -> None:
    assert (await site.get(f"/v1/jobs/{JOB}")).json()["emberkeep"]["procedure"] is None
    gateway.change(JOB, procedure=ProcedureView(job_id=JOB, trigger_id=TRIGGER, request=None, savepoint="/s/1"))
    shown = (await site.get(f"/v1/jobs/{JOB}")).json()["emberkeep"]["procedure"]
    assert (shown["trigger-id"], shown["location"], shown["phase"]) == (TRIGGER, "/s/1", "COMPLETED")


# --- where they lie ---------------------------------------------------------------------------------------------------


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    """A savepoint of one query with two files."""
    return make(tmp_path / "savepoints" / "savepoint-00000001-0123456789ab")


def make(root: Path) -> Path:
    contents = {"queries/query-q/commits/3": b"{}", "functions/0": b"state"}
    for name, data in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    query = QuerySavepoint(
        key="query-q",
        name="q",
        query_id="id",
        sink="parquet",
        output_mode="append",
        target="/out",
        location="/checkpoints/q",
        batch_id=3,
        offsets=('{"logOffset":3}',),
        watermark_ms=7,
    )
    manifest = Manifest(
        job_id=JOB,
        job_name="flights",
        attempt=2,
        trigger_id=TRIGGER,
        procedure=Procedure.SUSPEND,
        created_ms=NOW_MS,
        spark_version="4.3.0",
        emberkeep_version="0.1",
        queries=(query,),
        files=tuple(
            SavepointFile(path=name, size=len(data), sha256=hashlib.sha256(data).hexdigest())
            for name, data in contents.items()
        ),
    )
    (root / MANIFEST_NAME).write_bytes(encode_manifest(manifest))
    return root


async def test_the_list_has_those_of_all_jobs_newest_first(site: Site, gateway: FakeGateway) -> None:
    for number, created in ((1, 1_000), (2, 2_000)):
        pointer = SavepointPointer(
            path=f"/s/{number}", manifest_sha256="ab" * 32, created_ms=created, trigger_id=TRIGGER
        )
        gateway.change(job_id(number), pointers=JobPointers(savepoints=(pointer,)))
    listed = (await site.get("/v1/savepoints")).json()["savepoints"]
    assert [entry["path"] for entry in listed] == ["/s/2", "/s/1"]
    assert (listed[1]["job-name"], listed[1]["job-status"], listed[1]["trigger-id"]) == ("flights", "RUNNING", TRIGGER)


@pytest.mark.parametrize("prefix", ["", "file://", "file:"])
async def test_a_manifest_is_read_where_it_lies(site: Site, savepoint: Path, prefix: str) -> None:
    answer = await site.get("/v1/savepoints/manifest", params={"path": f"{prefix}{savepoint}"})
    assert answer.status == 200, answer
    shown = answer.json()
    assert (shown["job-name"], shown["size"], len(shown["files"])) == ("flights", 7, 2)
    assert (shown["queries"][0]["batch-id"], shown["queries"][0]["files"], shown["queries"][0]["size"]) == (3, 1, 2)
    assert shown["manifest-sha256"] == hashlib.sha256((savepoint / MANIFEST_NAME).read_bytes()).hexdigest()
    assert shown["restore-command"].startswith(f"emberkeep savepoint restore {prefix}{savepoint} --conf ")
    assert shown["restore-command"].endswith(" flights.py --input data/flights")


async def test_what_is_no_savepoint_is_404_and_a_damaged_one_400(site: Site, savepoint: Path, tmp_path: Path) -> None:
    assert (await site.get("/v1/savepoints/manifest", params={"path": str(tmp_path)})).status == 404
    assert (await site.get("/v1/savepoints/manifest", params={"path": "relative"})).problem().field == "path"
    (savepoint / MANIFEST_NAME).write_bytes((savepoint / MANIFEST_NAME).read_bytes()[:-3])
    answer = await site.get("/v1/savepoints/manifest", params={"path": str(savepoint)})
    assert (answer.status, answer.problem().field) == (400, "path")
    assert "damaged" in answer.problem().detail


@pytest.mark.parametrize(
    ("path", "status"), [("s3://", 400), ("hdfs://name/s", 400), ("file://host/s", 400), ("s3://bucket/s", 503)]
)
async def test_a_location_that_cannot_be_read_is_no_error_of_the_server(
    site: Site, monkeypatch: pytest.MonkeyPatch, path: str, status: int
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    read = await site.get("/v1/savepoints/manifest", params={"path": path})
    checked = await post(site, "/savepoint-verification", {"savepoint-path": path})
    for answer in (read, checked):
        assert (answer.status, bool(answer.problem().hint)) == (status, True), answer


async def verified(site: Site, savepoint: Path) -> Any:
    answer = await post(site, "/savepoint-verification", {"savepoint-path": str(savepoint)})
    assert answer.status == 200, answer
    return answer.json()


def flip(file: Path) -> None:
    file.write_bytes(bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:])


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (lambda root: flip(root / "functions/0"), "functions/0 was changed"),
        (lambda root: (root / "functions/0").write_bytes(b""), "functions/0 has 0 bytes; the manifest records 5"),
        (lambda root: (root / "functions/0").unlink(), "functions/0 is missing"),
        (lambda root: flip(root / MANIFEST_NAME), "the savepoint is damaged"),
    ],
)
async def test_verification_names_what_is_wrong(
    site: Site, savepoint: Path, damage: Callable[[Path], None], expected: str
) -> None:
    assert (await verified(site, savepoint)) == {
        "path": str(savepoint),
        "files": 2,
        "size": 7,
        "problems": [],
        "warnings": [],
        "manifest-files": 2,
    }
    piece = {"savepoint-path": str(savepoint), "first": 1, "count": 1}
    assert (await post(site, "/savepoint-verification", piece)).json()["files"] == 1
    damage(savepoint)
    (problem,) = (await verified(site, savepoint))["problems"]
    assert problem.startswith(expected)
    missing = await post(site, "/savepoint-verification", {"savepoint-path": str(savepoint.parent)})
    assert missing.status == 404


@pytest.mark.parametrize(("number", "is_told"), [(errno.EIO, True), (errno.EACCES, False)])
async def test_verification_names_a_file_that_the_disk_cannot_read(
    site: Site, savepoint: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_told: bool
) -> None:
    """Another reason, such as a missing permission, says nothing about the file."""
    read = os.pread

    def failing(file: int, size: int, offset: int) -> bytes:
        if Path(f"/proc/self/fd/{file}").readlink() == savepoint / "functions/0":
            raise OSError(number, os.strerror(number))
        return read(file, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    if is_told:
        (problem,) = (await verified(site, savepoint))["problems"]
        assert problem.startswith("functions/0: cannot read")
    else:
        answer = await post(site, "/savepoint-verification", {"savepoint-path": str(savepoint)})
        assert answer.status == 503


async def disposed(site: Site, path: Path) -> Any:
    answer = await post(site, "/savepoint-disposal", {"savepoint-path": str(path)})
    assert answer.status == 200, answer
    while True:
        shown = (await site.get(f"/v1/savepoint-disposal/{answer.json()['request-id']}")).json()
        if shown["status"]["id"] == "COMPLETED":
            return shown["operation"]


async def test_disposal_deletes_a_savepoint_and_nothing_else(site: Site, savepoint: Path) -> None:
    (savepoint.parent / "other").write_bytes(b"x")
    for wrong in (savepoint.parent, savepoint / "queries"):
        cause = (await disposed(site, wrong))["failure-cause"]
        assert "no savepoint" in cause["stack-trace"]
        assert cause["serialized-throwable"]
    assert await disposed(site, savepoint) == {}
    assert [entry.name for entry in savepoint.parent.iterdir()] == ["other"]
    assert (await disposed(site, savepoint))["failure-cause"]["class"] == "Absent"
    assert (await site.get(f"/v1/savepoint-disposal/{TRIGGER}")).status == 404
    assert (await post(site, "/savepoint-disposal", {"savepoint-path": ""})).problem().field == "savepoint-path"


@pytest.mark.parametrize("written", ["{}/", "file:{}", "file://{}", "file://localhost{}", "/{}", "{}/queries/.."])
async def test_what_a_running_job_has_started_from_stays(
    site: Site, gateway: FakeGateway, savepoint: Path, written: str
) -> None:
    graph = gateway.views[JOB].graph
    assert graph is not None
    gateway.change(JOB, graph=msgspec.structs.replace(graph, savepoint=written.format(savepoint)))
    assert (await disposed(site, savepoint))["failure-cause"]["class"] == "Conflict"
    gateway.change(JOB, status=JobStatus.FINISHED)
    assert await disposed(site, savepoint) == {}


async def test_a_file_that_stays_may_have_a_name_that_is_not_utf_8(site: Site, savepoint: Path) -> None:
    with open(os.fsencode(savepoint) + b"/caf\xe9 1.csv", "w"):  # noqa: PTH123, ASYNC230 - a Path has text
        pass
    assert await disposed(site, savepoint) == {}
    assert [os.fsencode(entry.name) for entry in savepoint.iterdir()] == [b"caf\xe9 1.csv"]


async def test_nothing_is_deleted_while_a_job_may_have_started_from_it(
    site: Site, gateway: FakeGateway, savepoint: Path
) -> None:
    """A job whose graph cannot be read does not say from where it started."""
    graph = gateway.views[JOB].graph
    gateway.change(JOB, graph=None, unreadable=True, waiting="its job graph")
    assert (await disposed(site, savepoint))["failure-cause"]["class"] == "RetryLater"
    gateway.change(JOB, graph=graph, unreadable=False)
    assert await disposed(site, savepoint) == {}


async def test_no_job_may_start_from_a_savepoint_from_the_check_to_the_end_of_its_deletion(
    site: Site, gateway: FakeGateway, savepoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    jobs, dispose = gateway.jobs, site.api.savepoints.dispose

    async def looked() -> list[JobView]:
        seen.append(list(gateway.disposed))
        return await jobs()

    async def deleted(path: str) -> tuple[str, ...]:
        seen.append(list(gateway.disposed))
        return await dispose(path)

    monkeypatch.setattr(gateway, "jobs", looked)
    monkeypatch.setattr(site.api.savepoints, "dispose", deleted)
    assert await disposed(site, savepoint) == {}
    assert [str(savepoint)] in seen
    assert seen[-1] == [str(savepoint)]
    assert not gateway.disposed


async def test_a_leader_in_doubt_does_not_know_all_jobs_and_deletes_nothing(
    site: Site, gateway: FakeGateway, savepoint: Path
) -> None:
    gateway.confirmed = False
    assert (await disposed(site, savepoint))["failure-cause"]["class"] == "RetryLater"
    gateway.confirmed = True
    assert await disposed(site, savepoint) == {}


@pytest.mark.req("SAFE-7")
@pytest.mark.parametrize("late", ["another leader", "a job"])
async def test_what_changes_before_the_first_file_is_deleted_keeps_the_savepoint_whole(
    site: Site, gateway: FakeGateway, savepoint: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    """The leader that deletes may have been frozen after its check, while the next one accepted a job."""
    begin, files = site.api.savepoints.begin_disposal, sorted(savepoint.rglob("*"))
    graph = gateway.views[JOB].graph
    assert graph is not None

    async def begun(path: str) -> bool:
        if late == "a job":
            gateway.change(JOB, graph=msgspec.structs.replace(graph, savepoint=path))
        else:
            gateway.confirmed = False
        return await begin(path)

    with monkeypatch.context() as patch:
        patch.setattr(site.api.savepoints, "begin_disposal", begun)
        cause = (await disposed(site, savepoint))["failure-cause"]["class"]
    assert cause == ("Conflict" if late == "a job" else "RetryLater")
    assert sorted(savepoint.rglob("*")) == files
    assert (await verified(site, savepoint))["problems"] == []


@pytest.mark.req("SAFE-7")
async def test_a_leader_that_is_replaced_before_the_first_file_is_deleted_gives_the_savepoint_back(
    site: Site, gateway: FakeGateway, savepoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = site.api.savepoints.begin_disposal, asyncio.Event()

    async def confirm() -> bool:
        if begun.is_set():
            await asyncio.Event().wait()  # the store does not answer
        return True

    async def beginning(path: str) -> bool:
        is_new = await begin(path)
        begun.set()
        return is_new

    monkeypatch.setattr(site.api.savepoints, "begin_disposal", beginning)
    monkeypatch.setattr(gateway, "is_confirmed", confirm)
    files = sorted(savepoint.rglob("*"))
    assert (await post(site, "/savepoint-disposal", {"savepoint-path": str(savepoint)})).status == 200
    await begun.wait()
    await site.api.disposals.close()
    assert sorted(savepoint.rglob("*")) == files
    assert (await verified(site, savepoint))["problems"] == []


@pytest.mark.req("SAFE-7")
async def test_a_savepoint_of_which_files_are_gone_stays_one_that_is_being_deleted(
    site: Site, gateway: FakeGateway, savepoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = site.api.savepoints.begin_disposal
    await begin(str(savepoint))
    (savepoint / "functions/0").unlink()

    async def begun(path: str) -> bool:
        gateway.confirmed = False
        return await begin(path)

    monkeypatch.setattr(site.api.savepoints, "begin_disposal", begun)
    assert (await disposed(site, savepoint))["failure-cause"]["class"] == "RetryLater"
    answer = await site.get("/v1/savepoints/manifest", params={"path": str(savepoint)})
    assert answer.status == 404
    assert "is being deleted" in answer.problem().detail


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("s3a://bucket/a", "s3://bucket/a/", True),
        ("S3N://bucket/a", "s3://bucket//a", True),
        ("file:///a/b%20c", "/a/b c", True),
        ("hdfs://name/a", "hdfs://name/a/", True),
        ("s3://bucket/a", "s3://other/a", False),
        ("s3://bucket/a", "gs://bucket/a", False),
        ("s3://bucket/a", "/bucket/a", False),
        ("hdfs://name/a", "/a", False),
        ("/a/savepoint-1", "/a/savepoint-12", False),
    ],
)
def test_one_place_can_be_written_in_several_ways(one: str, other: str, same: bool) -> None:
    assert is_same_place(one, other) is same
    assert is_same_place(other, one) is same
