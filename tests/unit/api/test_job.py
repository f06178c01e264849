"""What a process knows of the job that it works for."""

from __future__ import annotations

import pytest

from emberkeep.api import Job, current_job
from emberkeep.api.job import job_environment


def test_a_process_is_told_its_job_and_knows_none_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(job_id="a" * 32, attempt=3, name="flights")
    for name, value in job_environment(job).items():
        monkeypatch.setenv(name, value)
    assert current_job() == job
    assert current_job()
    monkeypatch.delenv("EMBERKEEP_JOB_ID")
    assert not current_job()
    assert current_job() == Job()
