"""Conversion of what a Spark application does and has done to bodies of the REST API. Pure functions."""

from __future__ import annotations

from emberkeep.jobs.progress.course import Course
from emberkeep.jobs.progress.history import HistoryPage
from emberkeep.jobs.progress.records import ProgressRecord, SourceProgress
from emberkeep.jobs.progress.work import AttemptWork, StageProgress
from emberkeep.protocol.progress.rest_history import ProgressHistory, ProgressInfo, QueryWithHistory, SourceInfo
from emberkeep.protocol.progress.rest_work import CourseInfo, StageInfo, WorkInfo

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
        memory_bytes_spilled=work.spilled_memory,
        disk_bytes_spilled=work.spilled_disk,
        time_left=work.left_ms,
        stages=[_stage(stage) for stage in work.stages],
    )


def _stage(stage: StageProgress) -> StageInfo:
    return StageInfo(
        stage_id=stage.stage_id,
        stage_attempt=stage.stage_attempt,
        name=stage.name,
        operations=stage.operations,
        status=stage.status,
        tasks=stage.tasks,
        running=stage.active,
        finished=stage.completed,
        failed=stage.failed,
        submission_time=stage.submitted_ms or NEVER,
        median_duration=stage.median_ms,
        longest_duration=stage.slowest_ms,
        skew=None if stage.skew is None else round(stage.skew, 2),
        time_left=stage.left_ms,
        longest_running=stage.running_ms,
        overdue=stage.overdue_ms is not None,
        memory_bytes_spilled=stage.spilled_memory,
        disk_bytes_spilled=stage.spilled_disk,
    )


def course_info(course: Course) -> CourseInfo:
    """Return the course of a job."""
    return CourseInfo(
        began=course.began_ms,
        interval=course.step_ms,
        tasks_finished=list(course.tasks),
        executors=list(course.executors),
        task_time=list(course.task_ms),
        gc_time=list(course.gc_ms),
        shuffle_read=list(course.shuffle_read),
        shuffle_write=list(course.shuffle_written),
        memory_bytes_spilled=list(course.spilled_memory),
        disk_bytes_spilled=list(course.spilled_disk),
    )


def progress_history(page: HistoryPage) -> ProgressHistory:
    """Return a part of a job's progress history."""
    return ProgressHistory(
        queries=[
            QueryWithHistory(
                query_id=query.query_id,
                name=query.name,
                records=query.records,
                oldest=query.oldest_ms,
                newest=query.newest_ms,
            )
            for query in page.queries
        ],
        records=[_record(record) for record in page.records],
        earlier=page.earlier,
    )


def _record(record: ProgressRecord) -> ProgressInfo:
    return ProgressInfo(
        recorded=record.recorded_ms,
        query_id=record.query_id,
        run_id=record.run_id,
        name=record.name,
        batch_id=record.batch_id,
        triggered=record.triggered_ms,
        duration=record.duration_ms,
        phases=record.phases,
        rows=record.rows,
        input_rows_per_second=record.input_rate,
        processed_rows_per_second=record.processed_rate,
        state_rows=record.state_rows,
        state_bytes=record.state_bytes,
        state_commit_duration=record.state_commit_ms,
        late_rows=record.late_rows,
        watermark=record.watermark_ms,
        watermark_gap=record.watermark_gap_ms,
        backlog_rows=record.backlog_rows,
        backlog_seconds=record.backlog_seconds,
        sources=[_source(source) for source in record.sources],
    )


def _source(source: SourceProgress) -> SourceInfo:
    return SourceInfo(
        description=source.description,
        rows=source.rows,
        input_rows_per_second=source.input_rate,
        processed_rows_per_second=source.processed_rate,
        start_offset=source.start_offset,
        end_offset=source.end_offset,
        latest_offset=source.latest_offset,
        backlog_rows=source.backlog_rows,
        backlog_seconds=source.backlog_seconds,
        metrics=source.metrics,
    )
