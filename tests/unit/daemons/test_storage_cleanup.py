"""Storage shrinks with its jobs, and nothing that a job may still need goes."""

from __future__ import annotations

from pathlib import Path

from emberkeep.base.config import Configuration
from emberkeep.base.ids import JobId
from emberkeep.base.state_layout import StateLayout
from emberkeep.daemons.storage_cleanup import clean_storage
from emberkeep.jobmanager.views import JobView
from emberkeep.jobs.model import JobStatus


def view(job_id: str, status: JobStatus) -> JobView:
    return JobView(
        job_id=JobId(job_id),
        name="job",
        status=status,
        submitted_ms=0,
        ended_ms=None,
        status_times_ms={},
        attempt=1,
        driver_task_manager=None,
        driver_pid=0,
        exit_code=None,
        root_cause="",
        waiting="",
        attempts=(),
        exceptions=(),
        graph=None,
        status_report=None,
        result=None,
    )


def test_checkpoints_go_with_jobs_that_cannot_run_again(tmp_path: Path) -> None:
    layout = StateLayout(tmp_path, Configuration())
    statuses = {status.value: status for status in JobStatus}
    for name in (*statuses, "unknown"):
        (layout.checkpoints / name / "q").mkdir(parents=True)
    clean_storage(layout, [view(name, status) for name, status in statuses.items()])
    left = {path.name for path in layout.checkpoints.iterdir()}
    assert left == set(statuses) - {"FINISHED", "CANCELED"}


def test_a_storage_that_is_not_there_yet_is_clean(tmp_path: Path) -> None:
    clean_storage(StateLayout(tmp_path / "absent", Configuration()), [])
    assert not (tmp_path / "absent").exists()
