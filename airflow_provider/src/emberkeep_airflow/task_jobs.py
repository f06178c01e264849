"""Which job belongs to a task: decides whether a try starts a job, takes over a live one, or takes a result.

The worker, the scheduler and the triggerer may be killed at any moment, so a try knows nothing for certain but what the
cluster says. Each job of a task has a number, and its id and idempotency key are computed from the task and that
number. Two processes that come to start a job of the same task at the same time therefore submit the same job, which
the cluster accepts once.

Airflow's try number is not part of the key: a worker that Airflow takes for dead may still be alive and submit for its
try after the next one has.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from emberkeep.base.ids import JobId
from emberkeep.jobs.model import JobStatus

_DIGITS = 24  # of the job id's 32: they name the task; the others are the job's number
_OURS = re.compile(r"[0-9a-f]{32}")
_ENDING = (JobStatus.FAILING, JobStatus.CANCELLING)


@dataclass(frozen=True)
class TaskIdentity:
    """A task instance over all its tries. ``map_index``: -1 if the task is not mapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    deployment: str = ""

    @property
    def digest(self) -> str:
        """64 hex digits that no other task instance has."""
        parts = ["emberkeep-airflow-1", self.deployment, self.dag_id, self.run_id, self.task_id, self.map_index]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def job_id(self, number: int) -> JobId:
        """Return the id of the task's job ``number``; the first one is 1."""
        return JobId(f"{self.digest[:_DIGITS]}{number:08x}")

    def idempotency_key(self, number: int) -> str:
        """Return the key under which job ``number`` is submitted."""
        return f"airflow-{self.digest}-{number}"

    def number_of(self, job_id: str) -> int:
        """Return the number of one of the task's jobs; 0 if the job belongs to something else."""
        if not _OURS.fullmatch(job_id) or not job_id.startswith(self.digest[:_DIGITS]):
            return 0
        return int(job_id[_DIGITS:], 16)


@dataclass(frozen=True)
class KnownJob:
    """A job in the cluster's list."""

    job_id: str
    status: JobStatus


@dataclass(frozen=True)
class Take:
    """Follow this job to its end and take its result: it runs, or it has finished and no try has reported that."""

    job_id: JobId


@dataclass(frozen=True)
class AwaitEnd:
    """The task's newest job is being cancelled, or is failing: wait until it has ended, then choose again."""

    job_id: JobId


@dataclass(frozen=True)
class Start:
    """Start the task's job ``number``: there is none that could be taken."""

    number: int


Choice = Take | AwaitEnd | Start


def reported(job_id: str, period: int) -> str:
    """Return what is stored once a job's result was reported, in the task's period ``period``.

    A period has the tries between two clears of the task. ``period``: the number of tries before it.
    """
    return f"{job_id} {period}"


def due(stored: str, period: int) -> str:
    """Return the id of the job whose result Airflow does not have, by what is stored; "" if there is none.

    A try that follows a report in the same period shows that Airflow has not recorded the report: its worker was lost.
    """
    job_id, _, reported_in = stored.partition(" ")
    return job_id if reported_in in ("", str(period)) else ""


def choose(task: TaskIdentity, known: Iterable[KnownJob], unreported: str) -> Choice:
    """Return what a try does that begins now.

    ``known``: the cluster's jobs. ``unreported``: id of the job that an earlier try has started or taken over, and
    whose result Airflow does not have; "" if there is none.

    A job that has failed or was cancelled is never taken: Airflow retries a task so that its work is done again.
    """
    numbers = {task.number_of(job.job_id): job for job in known}
    newest = max(numbers, default=0)
    if newest == 0:
        return Start(1)
    job = numbers[newest]
    if job.status in _ENDING:
        return AwaitEnd(JobId(job.job_id))
    if not job.status.is_globally_terminal:
        return Take(JobId(job.job_id))
    if job.status is JobStatus.FINISHED and job.job_id == unreported:
        return Take(JobId(job.job_id))
    return Start(newest + 1)
