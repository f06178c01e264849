"""What a process shows the gateway."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import AllocationId, JobId
from emberkeep.local_state.credential import caller_of, credential
from emberkeep.local_state.model import DRIVER, Caller

JOB = JobId("0" * 31 + "1")
SECRET = b"the node's"


@pytest.mark.parametrize("user_id", [None, 0, 1001, 2**32 - 2])
@pytest.mark.parametrize("allocation", [DRIVER, AllocationId("a" * 32)])
def test_a_credential_names_its_process(allocation: AllocationId, user_id: int | None) -> None:
    caller = Caller(job_id=JOB, attempt=7, allocation_id=allocation, user_id=user_id)
    assert caller_of(SECRET, credential(SECRET, caller)) == caller


@pytest.mark.req("HA-7")
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(".7.", ".8."),
        lambda text: text.replace(JOB, "f" * 32),
        lambda text: text.replace("driver", "a" * 32),
        lambda text: text.replace(".u1001", ".u1002"),
        lambda text: text.replace(".u1001", ""),
        lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"),
        lambda text: text + "0",
        lambda text: text.upper(),
        lambda text: "",
    ],
)
def test_no_process_makes_itself_another(change) -> None:  # type: ignore[no-untyped-def]
    text = credential(SECRET, Caller(job_id=JOB, attempt=7, allocation_id=DRIVER, user_id=1001))
    with pytest.raises(InvalidInput) as caught:
        caller_of(SECRET, change(text))
    assert text.rpartition(".")[2] not in str(caught.value)
    with pytest.raises(InvalidInput):
        caller_of(b"another node's", text)


@given(st.text())
def test_no_text_is_taken_for_one(text: str) -> None:
    with pytest.raises(InvalidInput):
        caller_of(SECRET, text)
