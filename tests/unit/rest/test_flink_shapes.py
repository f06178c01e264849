"""Bodies have the fields that the classes of Flink's own client read and write, as Flink 2.3.0 declares them.

Recorded from the constants (``FIELD_NAME_…``) of the classes in flink-dist-2.3.0.jar, below ``org.apache.flink``;
tests/integration/client/test_flink_client.py runs that client itself.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from emberkeep.protocol.rest_savepoints import FailureCause, SavepointPath, SavepointRequest, StopRequest
from tests.unit.rest.fake_gateway import job_id
from tests.unit.rest.server import Site

# What a reader takes null for where it is absent is left out: jobType and schedulerType.
JOB_DETAILS = {  # runtime.messages.webmonitor.JobDetails
    "jid": str,
    "name": str,
    "start-time": int,
    "end-time": int,
    "duration": int,
    "state": str,
    "last-modification": int,
    "tasks": dict,
    "pending-operators": int,
}
EXECUTION_STATES = {  # runtime.execution.ExecutionState, beside JobDetails' "total"
    *("created", "scheduled", "deploying", "running", "finished", "canceling", "canceled", "failed"),
    *("reconciling", "initializing"),
}
JOB_STATES = {  # api.common.JobStatus
    *("INITIALIZING", "CREATED", "RUNNING", "FAILING", "FAILED", "CANCELLING", "CANCELED", "FINISHED"),
    *("RESTARTING", "SUSPENDED", "RECONCILING"),
}
REQUESTS = {
    # runtime.rest.messages.job.savepoints.stop.StopWithSavepointRequestBody
    StopRequest: {"targetDirectory", "formatType", "drain", "triggerId"},
    # runtime.rest.messages.job.savepoints.SavepointTriggerRequestBody
    SavepointRequest: {"target-directory", "cancel-job", "triggerId", "formatType"},
    # runtime.rest.messages.job.savepoints.SavepointDisposalRequest
    SavepointPath: {"savepoint-path"},
}
TRIGGER_RESPONSE = {"request-id"}  # runtime.rest.handler.async.TriggerResponse
OPERATION = {"status", "operation"}  # runtime.rest.handler.async.AsynchronousOperationResult
QUEUE_STATUS = {"IN_PROGRESS", "COMPLETED"}  # runtime.rest.messages.queue.QueueStatus
FAILURE = {"class", "stack-trace", "serialized-throwable"}  # …messages.json.SerializedThrowableSerializer
ERROR = {"errors"}  # runtime.rest.messages.ErrorResponseBody


async def test_each_job_of_the_overview(site: Site) -> None:
    jobs = (await site.get("/v1/jobs/overview")).json()["jobs"]
    assert jobs
    for job in jobs:
        assert {name: type(job.get(name)) for name in JOB_DETAILS} == JOB_DETAILS
        assert job["state"] in JOB_STATES
        assert job["tasks"].keys() == EXECUTION_STATES | {"total"}
        assert {type(count) for count in job["tasks"].values()} == {int}


@pytest.mark.parametrize(("kind", "fields"), REQUESTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_all_fields_of_a_request_are_known(kind: type[msgspec.Struct], fields: set[str]) -> None:
    assert fields <= {field.encode_name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("stop", {"targetDirectory": "/s", "drain": True, "formatType": "CANONICAL", "triggerId": None}),
        ("savepoints", {"target-directory": "/s", "cancel-job": False, "formatType": "NATIVE", "triggerId": None}),
    ],
)
async def test_what_the_client_sends_is_taken_and_its_operation_found(
    site: Site, path: str, body: dict[str, Any]
) -> None:
    """It writes each field, null where nothing was given."""
    answer = await site.request("POST", f"/v1/jobs/{job_id(1)}/{path}", json=body)
    assert answer.status == 202
    assert answer.json().keys() >= TRIGGER_RESPONSE
    found = (await site.get(f"/v1/jobs/{job_id(1)}/savepoints/{answer.json()['request-id']}")).json()
    assert found.keys() >= OPERATION
    assert found["status"]["id"] in QUEUE_STATUS


def test_a_failure_has_all_that_the_client_reads() -> None:
    assert {field.encode_name for field in msgspec.structs.fields(FailureCause)} == FAILURE


async def test_errors_have_a_list_of_lines(site: Site) -> None:
    answer = await site.request("POST", f"/v1/jobs/{job_id(77)}/stop", json={})
    assert answer.status == 404
    assert answer.json().keys() >= ERROR
    assert all(type(line) is str for line in answer.json()["errors"])
