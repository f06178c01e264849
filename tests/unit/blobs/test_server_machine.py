"""The BLOB server's references and staged clean-up, case by case."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import Absent, Conflict, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, StoredBlob, permanent, transient
from emberkeep.blobs.server_machine import ServerMachine
from emberkeep.blobs.server_records import Deletion

A, B = JobId("a" * 32), JobId("b" * 32)
KEY, OTHER, MESSAGE = permanent("1" * 64), permanent("2" * 64), transient("3" * 64)
CONTENT = BlobContent(sha256="1" * 64, size=7)


@pytest.fixture
def machine() -> ServerMachine:
    """A server whose HA store is empty."""
    machine = ServerMachine()
    machine.found_ha({})
    return machine


def upload(machine: ServerMachine, owner: JobId = A, attempt: int = 0, key: object = KEY, size: int = 7) -> bool:
    number = machine.uploads.begin(owner, key, (), attempt)  # type: ignore[arg-type]
    return machine.uploads.stored(number, size)


def deletions(machine: ServerMachine, turns: int = 1) -> list[Deletion]:
    """The deletions that are due after some retention intervals; they are carried out."""
    found = []
    for _ in range(turns):
        machine.turn()
        for deletion in machine.clean_up.take():
            machine.clean_up.deleted(deletion)
            found.append(deletion)
    return found


def test_nothing_is_remembered_of_a_blob_that_is_deleted(machine: ServerMachine) -> None:
    upload(machine)
    assert [deletion.keys for deletion in deletions(machine, turns=2)] == [(KEY,)]
    assert (machine.state.owners, machine.state.owners_of, machine.state.deletions) == ({}, {}, [])


def test_a_blob_that_arrives_after_the_end_of_its_attempt_is_deleted(machine: ServerMachine) -> None:
    number = machine.uploads.begin(A, KEY, (), 1)
    machine.restart(A, 1)
    assert not machine.uploads.stored(number, 7)
    assert machine.clean_up.take() == [Deletion(owner=A, keys=(KEY,), whole=False)]


def test_clients_cannot_add_blobs_beyond_the_bound() -> None:
    machine = ServerMachine(most=2)
    machine.found_ha({})
    upload(machine, key=KEY)
    third = BlobContent(sha256="4" * 64, size=7)
    other = BlobContent(sha256="2" * 64, size=7)
    with pytest.raises(RetryLater, match=r"1 BLOBs, and 2 more exceed the 2 that it accepts") as refused:
        machine.uploads.open_group(B, [other, third])
    assert "blob.max-count" in (refused.value.hint or "")
    assert set(machine.state.owners) == {A}, "nothing is remembered of what was refused"
    assert machine.uploads.open_group(B, [other]) == (OTHER,)
    machine.uploads.refuse_surplus(A, [KEY])
    machine.uploads.refuse_surplus(B, [OTHER])
    with pytest.raises(RetryLater, match=r"2 BLOBs, and 1 more"):
        machine.uploads.refuse_surplus(A, [OTHER])
    machine.end(A)
    for deletion in machine.clean_up.take():
        machine.clean_up.deleted(deletion)
    machine.uploads.refuse_surplus(B, [KEY])


def test_a_blob_of_two_jobs_is_found_while_one_of_them_has_it(machine: ServerMachine) -> None:
    upload(machine, A)
    upload(machine, B)
    assert machine.state.is_elsewhere(A, KEY, 7)
    machine.end(B)
    (deletion,) = machine.clean_up.take()
    machine.clean_up.deleted(deletion)
    assert not machine.state.is_elsewhere(A, KEY, 7)
    assert machine.state.is_elsewhere(B, KEY, 7)
    assert not machine.state.is_elsewhere(B, KEY, 8)


@pytest.mark.parametrize(
    ("listing", "left"),
    [
        ({A: []}, [Deletion(owner=A, keys=(), whole=True)]),
        ({A: [StoredBlob(key=KEY, size=7, modified_ms=0)]}, [Deletion(owner=A, keys=(KEY,), whole=True)]),
    ],
    ids=["empty", "with a BLOB"],
)
def test_a_directory_that_an_earlier_process_left_is_deleted(
    machine: ServerMachine, listing: dict[JobId, list[StoredBlob]], left: list[Deletion]
) -> None:
    machine.found_local(listing)
    assert deletions(machine, turns=3) == left
    assert machine.state.owners == {}


@pytest.mark.req("BLOB-17")
def test_blobs_of_unknown_jobs_in_the_ha_store_are_kept_until_a_submission_names_them_or_they_are_given_up() -> None:
    machine = ServerMachine()
    machine.found_ha({owner: [StoredBlob(key=KEY, size=7, modified_ms=0)] for owner in (A, B)})
    assert deletions(machine, turns=3) == []
    assert machine.state.unknown_owners == {A, B}
    machine.claim(A, [CONTENT])
    assert machine.state.unknown_owners == {B}
    machine.give_up([B, JobId("c" * 32)])
    assert machine.state.unknown_owners == set()
    assert [deletion.owner for deletion in deletions(machine, turns=2)] == [B]


def test_a_claim_of_a_wrong_size_or_of_a_missing_blob_holds_nothing(machine: ServerMachine) -> None:
    upload(machine)
    for content in (BlobContent(sha256="1" * 64, size=8), BlobContent(sha256="2" * 64, size=7)):
        with pytest.raises(InvalidInput):
            machine.claim(A, [CONTENT, content])
    assert [deletion.keys for deletion in deletions(machine, turns=2)] == [(KEY,)]


def test_a_claim_ends_with_its_last_withdrawal(machine: ServerMachine) -> None:
    upload(machine)
    machine.claim(A, [CONTENT])
    machine.claim(A, [CONTENT])
    machine.withdraw(A)
    assert deletions(machine, turns=3) == []
    for _ in range(2):
        machine.withdraw(A)
    assert [deletion.keys for deletion in deletions(machine, turns=2)] == [(KEY,)]


def test_the_attempts_before_the_submitted_one_are_over_and_it_is_not(machine: ServerMachine) -> None:
    upload(machine)
    machine.submit(A, [KEY], attempt=3)
    with pytest.raises(Conflict):
        upload(machine, attempt=2, key=MESSAGE)
    assert upload(machine, attempt=3, key=MESSAGE)
    machine.restart(A, 3)
    with pytest.raises(Conflict):
        upload(machine, attempt=3, key=MESSAGE)
    assert upload(machine, attempt=4, key=MESSAGE)


def test_a_blob_that_a_job_names_but_no_store_has_can_be_read_and_has_no_size() -> None:
    """Both copies were damaged: the reference stays, so that the job's next attempt gets the error and not a hang."""
    machine = ServerMachine()
    machine.found_ha({})
    machine.submit(A, [KEY])
    assert machine.state.get(A, KEY).size == 0
    assert machine.state.state_of(A, KEY) == "referenced"
    with pytest.raises(Absent):
        machine.state.get(A, OTHER)


def test_the_oldest_ends_are_forgotten() -> None:
    machine = ServerMachine(remembered=2)
    machine.found_ha({})
    for number in range(3):
        machine.end(JobId(f"{number:032x}"))
    for deletion in machine.clean_up.take():
        machine.clean_up.deleted(deletion)
    assert [machine.state.has_ended(JobId(f"{number:032x}")) for number in range(3)] == [False, True, True]


def test_a_recovered_job_is_wanted_and_so_is_one_with_a_referenced_blob() -> None:
    machine = ServerMachine()
    machine.recover([A], [])
    machine.found_local(
        {B: [StoredBlob(key=MESSAGE, size=7, modified_ms=0), StoredBlob(key=KEY, size=7, modified_ms=0)]}
    )
    machine.hold(B, MESSAGE, ["receiver"])
    machine.found_ha({owner: [StoredBlob(key=KEY, size=7, modified_ms=0)] for owner in (A, B)})
    assert machine.state.unknown_owners == set()


def test_what_a_failed_upload_has_left_is_deleted_once_no_other_upload_of_it_runs(machine: ServerMachine) -> None:
    first, second = (machine.uploads.begin(A, KEY) for _ in range(2))
    machine.uploads.failed(first, leftovers=True)
    assert machine.clean_up.take() == []
    machine.uploads.failed(second, leftovers=False)
    (deletion,) = machine.clean_up.take()
    assert (deletion.owner, deletion.keys) == (A, (KEY,))


def test_a_failed_upload_leaves_a_blob_that_another_one_has_stored(machine: ServerMachine) -> None:
    first, second = (machine.uploads.begin(A, KEY) for _ in range(2))
    assert machine.uploads.stored(second, 7)
    machine.uploads.failed(first, leftovers=True)
    assert machine.clean_up.take() == []
    assert machine.state.get(A, KEY).is_there


def test_a_failed_upload_that_has_left_nothing_needs_no_deletion(machine: ServerMachine) -> None:
    machine.uploads.failed(machine.uploads.begin(A, KEY), leftovers=False)
    assert machine.clean_up.take() == []
    assert machine.state.owners == {}
