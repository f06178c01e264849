"""Conversion of what a Spark application does and has done to bodies of the REST API. Pure functions."""

from __future__ import annotations

from emberkeep.jobs.progress.work import AttemptWork, StageProgress
from emberkeep.protocol.progress.rest_work import StageInfo, WorkInfo

NEVER = -1


def work_info(work: AttemptWork) -> WorkInfo:
    """Return the counts of an attempt."""
    return WorkInfo(
        jobs_active=work.active_jobs,
        jobs_completed=work.completed_jobs,
        stages_active=work.active_stages,
        stages_completed=work.completed_stages,
        tasks_total=work.total_tasks,
        tasks_running=work.active_tasks,
        tasks_finished=work.completed_tasks,
        tasks_failed=work.failed_tasks,
        task_time=work.task_ms,
        gc_time=work.gc_ms,
        shuffle_read=work.shuffle_read,
        shuffle_write=work.shuffle_written,
        stages=[_stage(stage) for stage in work.stages],
    )


def _stage(stage: StageProgress) -> StageInfo:
    return StageInfo(
        stage_id=stage.stage_id,
        stage_attempt=stage.stage_attempt,
        name=stage.name,
        status=stage.status,
        tasks=stage.tasks,
        running=stage.active,
        finished=stage.completed,
        failed=stage.failed,
        submission_time=stage.submitted_ms or NEVER,
        median_duration=stage.median_ms,
        longest_duration=stage.slowest_ms,
        skew=None if stage.skew is None else round(stage.skew, 2),
    )
