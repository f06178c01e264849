"""Messages between neighbouring releases, as they meet while a cluster is upgraded."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from emberkeep.base.errors import Damaged, Fatal, NewerFormat, RetryLater, Unavailable, UnknownOutcome
from emberkeep.base.ids import AllocationId, InstanceId, JobId
from emberkeep.jobs.traces.recovery_trace import TraceReport
from emberkeep.protocol.encoding.wire import decode_error, decode_reply, decode_request, encode_error
from emberkeep.protocol.messages.executors import ReleaseSlot, SlotsReply
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat
from emberkeep.protocol.messages.task_manager_reports import DriverReport, ProcessState

pytestmark = pytest.mark.req("SAFE-14")

RELEASE = ReleaseSlot(job_id=JobId("a" * 32), attempt=1, allocation_id=AllocationId("x"))
REPLY = SlotsReply(instance=InstanceId("c" * 32), allocations=(), executors=())


def _with_more(message: msgspec.Struct) -> bytes:
    return msgspec.msgpack.encode({**msgspec.to_builtins(message), "added": {"by": "a newer release"}})


def test_fields_that_a_newer_release_added_are_ignored() -> None:
    assert decode_request("ReleaseSlot", _with_more(RELEASE)) == RELEASE
    assert decode_reply(_with_more(REPLY), SlotsReply, sender="peer") == REPLY


def test_a_trace_may_have_names_of_a_newer_release() -> None:
    trace = TraceReport(age=1.0, milestones={"invented-later": 0.5}, cause="of-tomorrow", start="lukewarm")
    status = JobMasterStatus(sequence=1, requirements=(), executors=(), trace=trace)
    heartbeat = JobMasterHeartbeat(job_id=JobId("a" * 32), attempt=1, status=status)
    assert decode_request("JobMasterHeartbeat", _with_more(heartbeat)) == heartbeat


def test_without_a_trace_a_status_is_that_of_the_previous_release() -> None:
    status = JobMasterStatus(sequence=1, requirements=(), executors=())
    assert "trace" not in msgspec.to_builtins(status)
    driver = DriverReport(job_id=JobId("a" * 32), attempt=1, state=ProcessState.RUNNING, pid=7)
    assert msgspec.to_builtins(driver).keys() == {"job_id", "attempt", "state", "pid"}


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (Unavailable("away", hint="mount it"), RetryLater),
        (Damaged("torn"), Fatal),
        (NewerFormat("newer"), Fatal),
    ],
)
def test_an_error_of_a_new_class_travels_as_the_root_that_every_release_knows(
    error: RetryLater | Fatal, known: type[Exception]
) -> None:
    received = decode_error(encode_error(error), sender="peer")
    assert type(received) is known
    assert (received.message, received.hint) == (error.message, error.hint)


def test_an_error_with_more_fields_is_understood() -> None:
    data = msgspec.msgpack.encode({"error": "Fatal", "message": "m", "added": 1})
    received = decode_error(data, sender="peer")
    assert type(received) is Fatal
    assert not isinstance(received, UnknownOutcome)


def test_what_is_persisted_or_sent_refuses_no_field() -> None:
    """Only what a person writes does: the bodies and queries of REST, and declared jobs."""
    source = Path(__file__).parents[3] / "src" / "emberkeep"
    strict = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "forbid_unknown_fields" in path.read_text()
    }
    declared = ("client/declarations/declaration.py", "client/declarations/policies.py")
    written = ("rest/", "protocol/rest", "protocol/upgrades/rest", "testing/", *declared)
    assert {path for path in strict if not path.startswith(written)} == set()
