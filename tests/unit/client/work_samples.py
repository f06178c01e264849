"""What Spark has done for a job, as the REST API says it."""

from __future__ import annotations

from emberkeep.protocol.progress.rest_work import StageInfo, WorkInfo

STAGE = StageInfo(
    stage_id=4,
    stage_attempt=0,
    name="collect at app.py:5",
    status="ACTIVE",
    tasks=8,
    running=2,
    finished=5,
    failed=1,
    submission_time=0,
    median_duration=2_000,
    longest_duration=9_000,
    skew=4.5,
    time_left=3_000,
    memory_bytes_spilled=4096,
    disk_bytes_spilled=2048,
)
WORK = WorkInfo(
    jobs_active=1,
    jobs_completed=2,
    stages_active=1,
    stages_completed=3,
    tasks_total=9,
    tasks_running=2,
    tasks_finished=6,
    tasks_failed=1,
    task_time=20_000,
    gc_time=500,
    shuffle_read=1024,
    shuffle_write=3 * 1024**2,
    memory_bytes_spilled=4096,
    disk_bytes_spilled=2048,
    time_left=65_000,
    stages=[STAGE],
)
