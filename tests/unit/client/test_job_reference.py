import pytest

from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.client.job_reference import choose_job
from emberkeep.jobs.model import JobStatus
from tests.unit.client.fake_job_manager import job_info, job_summary

A, B, C, D = "a1" + "0" * 30, "a2" + "0" * 30, "b1" + "0" * 30, "c1" + "0" * 30
JOBS = [
    job_summary(job)
    for job in (
        job_info(A, "etl"),
        job_info(B, "etl", JobStatus.FINISHED),
        job_info(C, "old", JobStatus.FAILED),
        job_info(D, "old", JobStatus.FINISHED),
        job_info("d" * 32, "c1"),
    )
]


@pytest.mark.parametrize(
    ("reference", "job_id"),
    [(A, A), ("a1", A), ("b", C), ("etl", A), ("c1", "d" * 32), ("c10", D)],
)
def test_a_job_is_found_by_name_or_by_the_beginning_of_its_id(reference: str, job_id: str) -> None:
    assert choose_job(JOBS, reference) == job_id


@pytest.mark.parametrize("reference", ["nothing", "ff", "", "A1"])
def test_an_unknown_job_is_told(reference: str) -> None:
    with pytest.raises(Absent, match="there is no job"):
        choose_job(JOBS, reference)


@pytest.mark.parametrize(("reference", "count"), [("a", 2), ("old", 2)])
def test_an_ambiguous_name_lists_the_candidates(reference: str, count: int) -> None:
    with pytest.raises(InvalidInput, match=rf"matches {count} jobs: .*give more of the job's id"):
        choose_job(JOBS, reference)
