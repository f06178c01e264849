"""Messages taken apart and put together: whatever the sizes are, what arrives is what was sent."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.blobs.model import NO_JOB, permanent, transient
from emberkeep.jobs.model import AttemptOutcome
from emberkeep.protocol.encoding.offload import (
    REST,
    OffloadedMessage,
    OffloadedPart,
    attempt_of,
    decode_offloaded,
    encode_offloaded,
    join,
    owner_of,
    owner_or_none,
    split,
)
from emberkeep.protocol.encoding.wire import encode_message
from emberkeep.protocol.messages.executors import ReleaseSlot, StartExecutor
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus
from emberkeep.protocol.messages.job_masters import JobMasterHeartbeat, ReportOutcome
from emberkeep.protocol.messages.root import Ack
from emberkeep.protocol.messages.task_managers import StopDriver

pytestmark = pytest.mark.req("BLOB-19")

JOB = JobId("a" * 32)
DELIVERY = "d" * 32
TEXT = st.text(max_size=60)


def start(environ: dict[str, str], *, url: str = "", options: tuple[str, ...] = ()) -> StartExecutor:
    return StartExecutor(
        job_id=JOB,
        attempt=1,
        allocation_id=AllocationId("b" * 32),
        executor_id=ExecutorId("0"),
        driver_url=url,
        app_id="app",
        cores=1,
        heap_mb=1024,
        java_options=options,
        extra_class_path="",
        environ=environ,
        auth_secret="s",
        python_path=(),
    )


def through(message: StartExecutor, minimum: int) -> tuple[OffloadedMessage, StartExecutor]:
    """What travels, and what it is on the other side."""
    taken = split(message, minimum)
    contents = {str(transient(hashlib.sha256(data).hexdigest())): data for data in taken.parts.values()}
    parts = {
        name: OffloadedPart(key=str(transient(hashlib.sha256(data).hexdigest())), size=len(data))
        for name, data in taken.parts.items()
    }
    sent = OffloadedMessage(owner=JOB, attempt=0, delivery=DELIVERY, parts=parts, inline=taken.inline)
    return sent, msgspec.msgpack.decode(join(sent, contents), type=StartExecutor)


@given(st.dictionaries(TEXT, TEXT, max_size=6), TEXT, st.lists(TEXT, max_size=5), st.integers(0, 400))
def test_a_message_comes_together_as_it_was(
    environ: dict[str, str], url: str, options: list[str], minimum: int
) -> None:
    message = start(environ, url=url, options=tuple(options))
    sent, received = through(message, minimum)
    assert received == message
    assert len(sent.inline) <= minimum
    assert all(part.size > minimum for part in sent.parts.values())


def test_only_large_fields_are_taken_out() -> None:
    taken = split(start({"CONFIGURATION": "x" * 5000}, url="spark://driver"), 1000)
    assert taken.parts.keys() == {"environ"}
    assert b"spark://driver" in taken.inline


def test_many_small_fields_travel_as_a_whole() -> None:
    sent, _ = through(start({"A": "a" * 80}, url="u" * 80, options=("o" * 80,)), 100)
    assert sent.parts.keys() == {REST}
    assert sent.inline == b""


def test_equal_parts_of_several_messages_are_one_blob() -> None:
    graph = {"CONFIGURATION": "x" * 5000}
    first, _ = through(start(graph, url="one"), 1000)
    second, _ = through(start(graph, url="two"), 1000)
    assert first.blobs() == second.blobs()
    assert len(first.blobs()) == 1


def test_whom_a_messages_parts_belong_to() -> None:
    about_a_job = ReleaseSlot(job_id=JOB, attempt=1, allocation_id=AllocationId("b"))
    assert owner_of(about_a_job) == JOB
    assert owner_or_none(Ack(), about_a_job) == JOB
    assert owner_or_none(Ack()) == NO_JOB
    assert owner_of(ReleaseSlot(job_id=JobId("../x"), attempt=1, allocation_id=AllocationId("b"))) is None


def test_a_message_itself_is_no_reference() -> None:
    assert decode_offloaded(encode_message(start({}))) is None
    assert decode_offloaded(b"") is None


def reference(**changes: object) -> OffloadedMessage:
    part = OffloadedPart(key=str(transient("0" * 64)), size=5)
    given = {"owner": JOB, "attempt": 1, "delivery": DELIVERY, "parts": {"environ": part}, "inline": b"\x80", **changes}
    return OffloadedMessage(**given)  # type: ignore[arg-type]


def test_a_reference_arrives_as_it_was() -> None:
    assert decode_offloaded(encode_offloaded(reference())) == reference()
    assert reference().holder == f"message-{DELIVERY}"


@pytest.mark.parametrize(
    "changes",
    [
        {"owner": "../../etc"},
        {"delivery": "x"},
        {"delivery": "../" + "d" * 29},
        {"parts": {}},
        {"parts": {"environ": OffloadedPart(key="../x", size=5)}},
        {"parts": {"environ": OffloadedPart(key=str(permanent("0" * 64)), size=5)}},
        {"parts": {"environ": OffloadedPart(key=str(transient("0" * 64)), size=-5)}},
        {"parts": {"environ": OffloadedPart(key=str(transient("0" * 64)), size=2**40)}},
        {"parts": {str(number): OffloadedPart(key=str(transient("0" * 64)), size=1) for number in range(65)}},
    ],
)
def test_references_to_what_no_message_has_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        decode_offloaded(encode_offloaded(reference(**changes)))


@pytest.mark.parametrize(
    "data", [b"\xc7", b"\xc7\x01\x01\xc1", b"\xd4\x02\x80", b"\xc9\xff\xff\xff\xff\x01", b"\xd4\x01\x80"]
)
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode_offloaded(data)


def test_another_size_and_fields_that_are_there_twice_are_refused() -> None:
    key = str(transient("0" * 64))
    with pytest.raises(InvalidInput, match="differs from the announced size"):
        join(reference(), {key: b"\x80"})
    inline = msgspec.msgpack.encode({"environ": {}})
    with pytest.raises(InvalidInput, match="twice"):
        join(reference(inline=inline, parts={"environ": OffloadedPart(key=key, size=1)}), {key: b"\x80"})
    with pytest.raises(InvalidInput):
        join(reference(inline=b"\xc1", parts={"environ": OffloadedPart(key=key, size=1)}), {key: b"\x80"})


@pytest.mark.req("HA-7")
def test_for_which_attempt_a_message_acts() -> None:
    """What a leader orders acts for none, and what a JobMaster reports for its own, whatever epoch it knows."""
    outcome = AttemptOutcome(exit_code=0)
    assert attempt_of(ReportOutcome(job_id=JOB, attempt=3, outcome=outcome, known_epoch=7)) == 3
    status = JobMasterStatus(sequence=1, requirements=(), executors=())
    assert attempt_of(JobMasterHeartbeat(job_id=JOB, attempt=3, status=status, known_epoch=7)) == 3
    assert attempt_of(StopDriver(epoch=7, job_id=JOB, attempt=3, grace=1.0)) == NO_ATTEMPT
    assert attempt_of(Ack(), ReleaseSlot(job_id=JOB, attempt=2, allocation_id=AllocationId("b"))) == 2
