"""The list of jobs is narrowed by state, owner and name, and its address says by which."""

from __future__ import annotations

import pytest

from emberkeep.jobmanager.views.jobs import brief_of
from emberkeep.jobs.model import JobStatus
from emberkeep.web.job_filter import JobFilter
from tests.unit.rest.fake_gateway import job_id, job_view

NAMES = {1: "Orders by hour", 2: "visits", 3: "old orders"}
JOBS = [brief_of(job_view(job_id(number), name)) for number, name in NAMES.items()]


@pytest.mark.parametrize(
    ("name", "found"),
    [("", [1, 2, 3]), ("ORDERS", [1, 3]), (" visits ", [2]), (job_id(2), [2]), ("orders by", [1]), ("none", [])],
)
def test_a_name_in_any_case_or_the_beginning_of_an_id(name: str, found: list[int]) -> None:
    assert [job.job_id for job in JobFilter(name=name).matching(JOBS)] == [job_id(number) for number in found]


def test_an_address_keeps_what_it_does_not_change() -> None:
    wanted = JobFilter(JobStatus.RUNNING, "anna", "a&b=c")
    assert JobFilter().path() == "/jobs"
    assert wanted.path(2) == "/jobs?state=RUNNING&owner=anna&name=a%26b%3Dc&page=2"
    assert wanted.with_status(None).path() == "/jobs?owner=anna&name=a%26b%3Dc"
    assert wanted.with_owner("").path() == "/jobs?state=RUNNING&name=a%26b%3Dc"
