"""Which job a try of a task starts or takes."""

from __future__ import annotations

import re

import pytest

from emberkeep.base.ids import parse_job_id
from emberkeep.jobs.model import JobStatus
from emberkeep_airflow.task_jobs import AwaitEnd, Choice, KnownJob, Start, Take, TaskIdentity, choose, due, reported

TASK = TaskIdentity("etl", "scheduled__2026-11-26T00:00:00+00:00", "count")
ONE, TWO = TASK.job_id(1), TASK.job_id(2)
OTHERS = [
    KnownJob("a" * 32, JobStatus.RUNNING),
    KnownJob(TaskIdentity("etl", TASK.run_id, "count", 0).job_id(9), JobStatus.RUNNING),
]


@pytest.mark.parametrize(
    ("known", "unreported", "choice"),
    [
        ([], "", Start(1)),
        ([], ONE, Start(1)),  # the worker was killed between storing the id and submitting the job
        ([(ONE, JobStatus.CREATED)], ONE, Take(ONE)),
        ([(ONE, JobStatus.RUNNING)], "", Take(ONE)),  # also if Airflow's store was wiped
        ([(ONE, JobStatus.RESTARTING)], ONE, Take(ONE)),
        ([(ONE, JobStatus.CANCELLING)], ONE, AwaitEnd(ONE)),
        ([(ONE, JobStatus.FAILING)], ONE, AwaitEnd(ONE)),
        ([(ONE, JobStatus.FINISHED)], ONE, Take(ONE)),  # it finished while no worker lived
        ([(ONE, JobStatus.FINISHED)], "", Start(2)),  # reported, then the task was cleared
        ([(ONE, JobStatus.FAILED)], ONE, Start(2)),
        ([(ONE, JobStatus.CANCELED)], ONE, Start(2)),
        ([(TWO, JobStatus.RUNNING), (ONE, JobStatus.FAILED)], TWO, Take(TWO)),
        ([(ONE, JobStatus.FAILED), (TWO, JobStatus.FAILED)], TWO, Start(3)),
        ([(TWO, JobStatus.RUNNING)], TWO, Take(TWO)),  # the cluster has forgotten the first
    ],
)
def test_a_try_takes_what_lives_and_repeats_what_has_failed(
    known: list[tuple[str, JobStatus]], unreported: str, choice: Choice
) -> None:
    assert choose(TASK, [*OTHERS, *(KnownJob(*job) for job in known)], unreported) == choice


def test_a_reported_result_is_due_to_the_retry_of_its_period_and_to_no_cleared_task() -> None:
    assert due("", 0) == ""
    assert due(ONE, 0) == ONE
    assert due(reported(ONE, 0), 0) == ONE
    assert due(reported(ONE, 0), 1) == ""
    assert due(reported(ONE, 11), 1) == ""


def test_each_part_of_the_identity_counts() -> None:
    others = [
        TaskIdentity("etl2", TASK.run_id, "count"),
        TaskIdentity("etl", "manual__1", "count"),
        TaskIdentity("etl", TASK.run_id, "count2"),
        TaskIdentity("etl", TASK.run_id, "count", 0),
        TaskIdentity("etl", TASK.run_id, "count", -1, "staging"),
        TaskIdentity("etl", f"{TASK.run_id}count", ""),
    ]
    assert len({each.job_id(1) for each in [TASK, *others]}) == 7
    assert len({each.idempotency_key(1) for each in [TASK, *others]}) == 7


def test_ids_and_keys_have_the_form_that_the_cluster_takes_and_stay_the_same() -> None:
    assert parse_job_id(ONE) == ONE
    assert re.fullmatch("[ -~]{1,200}", TASK.idempotency_key(2**32 - 1))
    assert (TASK.number_of(ONE), TASK.number_of(TASK.job_id(300)), TASK.number_of("a" * 32)) == (1, 300, 0)
    # An upgrade of the provider must find the jobs that the release before has started.
    assert ONE == "2c2eca281d872114c24fc35c00000001"
