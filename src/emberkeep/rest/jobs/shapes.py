"""Conversion of views of jobs to bodies of the REST API. Pure functions."""

from __future__ import annotations

from emberkeep.base.configuration.options.restarts import RESTART_STRATEGY
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.redaction import redacted, redacted_arguments
from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.model import AttemptRecord, ExceptionEntry, JobStatus
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.jobs.progress.outstanding import Outstanding
from emberkeep.jobs.progress.records import seconds_for
from emberkeep.jobs.traces.recovery_trace import RecoveryTrace
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus, QueryProgress, Scaling
from emberkeep.protocol.progress.rest_flows import FlowInfo
from emberkeep.protocol.rest_jobs import (
    AlarmInfo,
    AttemptInfo,
    BacklogInfo,
    DriverInfo,
    DynamicAllocationInfo,
    ExceptionHistory,
    ExceptionInfo,
    ExecutionConfig,
    JobConfigExtension,
    JobConfigInfo,
    JobDetails,
    JobDetailsInfo,
    JobExceptions,
    JobExtension,
    JobPlan,
    JobSummaryExtension,
    ReclaimInfo,
    ReservedStandbyInfo,
    StreamingQuery,
    TaskCounts,
)
from emberkeep.protocol.rest_recovery import MilestoneInfo, RecoveryInfo
from emberkeep.rest.jobs.executor_shapes import ended_executor_infos, executor_infos
from emberkeep.rest.jobs.progress_shapes import course_info, work_info
from emberkeep.rest.jobs.savepoint_shapes import periodic_info, procedure_info
from emberkeep.rest.jobs.upgrade_shapes import upgrade_info
from emberkeep.slots.model import Reclaim
from emberkeep.slots.reserved.choices import StandbyView

NEVER = -1


def job_details(view: JobView, now_ms: int) -> JobDetails:
    """Return a job's entry in the overview."""
    return JobDetails(
        jid=view.job_id,
        name=view.name,
        state=view.status,
        start_time=view.submitted_ms,
        end_time=_or_never(view.ended_ms),
        duration=_duration(view, now_ms),
        last_modification=max(view.status_times_ms.values(), default=view.submitted_ms),
        tasks=_task_counts(view.report),
        emberkeep=JobSummaryExtension(
            attempt=view.attempt,
            executors=_executors_registered(view),
            executors_wanted=view.executors_wanted,
            waiting=view.waiting,
            exit_code=view.exit_code,
            owner=view.owner,
            namespace=view.namespace,
            alarms=_alarms(view),
        ),
    )


def _alarms(view: JobView) -> list[AlarmInfo]:
    return [
        AlarmInfo(kind=alarm.kind, query=alarm.query, since=alarm.since_ms, message=alarm.message)
        for alarm in view.alarms
    ]


def job_details_info(view: JobView, now_ms: int) -> JobDetailsInfo:
    """Return all details of one job."""
    return JobDetailsInfo(
        jid=view.job_id,
        name=view.name,
        is_stoppable=False,
        state=view.status,
        start_time=view.submitted_ms,
        end_time=_or_never(view.ended_ms),
        duration=_duration(view, now_ms),
        max_parallelism=NEVER,
        now=now_ms,
        timestamps={status: view.status_times_ms.get(status, 0) for status in JobStatus},
        vertices=[],
        status_counts={},
        plan=JobPlan(jid=view.job_id, name=view.name, nodes=[]),
        emberkeep=_job_extension(view, now_ms),
    )


def job_exceptions(view: JobView, maximum: int) -> JobExceptions:
    """Return the newest ``maximum`` entries of the job's exception history, and the newest as root exception."""
    newest_first = sorted(view.exceptions, key=lambda entry: entry.timestamp_ms, reverse=True)
    shown = newest_first[:maximum]
    truncated = len(shown) < len(newest_first)
    root = newest_first[0] if newest_first else None
    return JobExceptions(
        root_exception=None if root is None else root.traceback or root.message,
        timestamp=None if root is None else root.timestamp_ms,
        all_exceptions=[],
        truncated=truncated,
        exception_history=ExceptionHistory(entries=[_exception(entry) for entry in shown], truncated=truncated),
    )


def job_config(view: JobView, configuration: Configuration) -> JobConfigInfo:
    """Return the configuration that the job was submitted with, without secret values."""
    graph = view.graph
    options = {} if graph is None else redacted(graph.options)
    spark_conf = {} if graph is None else redacted(graph.spark_conf)
    strategy = options.get(RESTART_STRATEGY.key, configuration[RESTART_STRATEGY])
    return JobConfigInfo(
        jid=view.job_id,
        name=view.name,
        execution_config=ExecutionConfig(
            execution_mode="PIPELINED",
            restart_strategy=strategy,
            job_parallelism=NEVER if graph is None else graph.resources.executors * graph.resources.executor_cores,
            object_reuse_mode=False,
            user_config={**spark_conf, **options},
        ),
        emberkeep=None
        if graph is None
        else JobConfigExtension(
            entry_point=graph.entry_point,
            arguments=redacted_arguments(graph.arguments),
            artefacts=list(graph.artefacts),
            spark_conf=spark_conf,
            options=options,
            resources=graph.resources,
            working_directory=graph.working_directory,
            python=graph.python,
        ),
    )


def _job_extension(view: JobView, now_ms: int) -> JobExtension:
    report = view.report
    driver = view.driver_task_manager
    traces = {trace.attempt: trace for trace in view.traces}
    return JobExtension(
        attempt=view.attempt,
        driver=None if driver is None else DriverInfo(taskmanager_id=driver, pid=view.driver_pid),
        waiting=view.waiting,
        executors=executor_infos(report),
        executors_wanted=view.executors_wanted,
        queries=[] if report is None else [_query(query) for query in report.queries],
        attempts=[_attempt(record, traces.get(record.attempt)) for record in view.attempts],
        exit_code=view.exit_code,
        root_cause=view.root_cause,
        app_id="" if report is None else report.app_id,
        active_stages=0 if report is None else report.active_stages,
        procedure=None if view.procedure is None else procedure_info(view.procedure, view, now_ms),
        owner=view.owner,
        namespace=view.namespace,
        reserved_standby=None if view.standby is None else _standby(view.standby),
        alarms=_alarms(view),
        periodic_savepoints=None if view.periodic is None else periodic_info(view.periodic),
        upgrade=None if view.upgrade is None else upgrade_info(view.upgrade),
        work=None if report is None or report.work is None else work_info(report.work),
        dynamic_allocation=None if report is None or report.scaling is None else _dynamic_allocation(report.scaling),
        reclaim=None if report is None or report.reclaim is None else _reclaim(report.reclaim),
        priority=view.priority,
        gang=view.gang,
        ended_executors=ended_executor_infos(report),
        course=None if report is None or report.course is None else course_info(report.course),
        flows=[] if report is None else [_flow(flow) for flow in report.flows],
    )


def _reclaim(reclaim: Reclaim) -> ReclaimInfo:
    return ReclaimInfo(ceiling=reclaim.ceiling, reason=reclaim.reason)


def _dynamic_allocation(scaling: Scaling) -> DynamicAllocationInfo:
    return DynamicAllocationInfo(
        wanted=scaling.wanted,
        minimum=scaling.minimum,
        maximum=scaling.maximum,
        changed=scaling.changed_ms,
        autoscaled=scaling.autoscaled,
        reason=scaling.reason,
    )


def _standby(standby: StandbyView) -> ReservedStandbyInfo:
    return ReservedStandbyInfo(taskmanager_id=standby.task_manager, ready=not standby.why_not, why_not=standby.why_not)


def _attempt(record: AttemptRecord, trace: RecoveryTrace | None) -> AttemptInfo:
    outcome = record.outcome
    return AttemptInfo(
        attempt=record.attempt,
        taskmanager_id=record.task_manager,
        start_time=record.started_ms,
        end_time=_or_never(record.ended_ms),
        exit_code=None if outcome is None else outcome.exit_code,
        failure_kind=None if outcome is None else outcome.kind,
        root_cause="" if outcome is None else outcome.message,
        recovery=None if trace is None else _recovery(trace),
    )


def _recovery(trace: RecoveryTrace) -> RecoveryInfo:
    return RecoveryInfo(
        cause=trace.cause,
        began=trace.began_ms if trace.milestones else NEVER,
        delay=round(trace.delay * 1000),
        start=trace.start,
        why_cold=trace.why_cold,
        milestones=[
            MilestoneInfo(milestone=reached.milestone.value, after=round(reached.seconds * 1000))
            for reached in trace.milestones
        ],
    )


def _query(query: QueryProgress) -> StreamingQuery:
    return StreamingQuery(
        id=query.id,
        run_id=query.run_id,
        name=query.name,
        batch_id=query.batch_id,
        timestamp=query.timestamp,
        num_input_rows=query.num_input_rows,
        input_rows_per_second=query.input_rows_per_second,
        processed_rows_per_second=query.processed_rows_per_second,
        state_rows=query.state_rows,
        watermark=query.watermark,
        status=query.status,
        checkpoint_location=query.checkpoint_location,
        backlog_rows=query.backlog_rows,
        backlog_seconds=seconds_for(query.backlog_rows, query.processed_rows_per_second),
        backlog=_backlog(query.outstanding),
    )


def _backlog(left: Outstanding) -> BacklogInfo | None:
    if not left.is_known:
        return None
    return BacklogInfo(
        rows=left.rows,
        files=left.files,
        bytes=left.size,
        time_behind=left.behind_ms,
        unknown_sources=left.unknown,
    )


def _flow(flow: FlowProgress) -> FlowInfo:
    return FlowInfo(name=flow.name, state=flow.state, since=flow.changed_ms, message=flow.message)


def _exception(entry: ExceptionEntry) -> ExceptionInfo:
    return ExceptionInfo(
        exception_name=entry.kind,
        stacktrace=entry.traceback or entry.message,
        message=entry.message,
        timestamp=entry.timestamp_ms,
        task_name="",
        endpoint=entry.task_manager,
        task_manager_id=entry.task_manager,
        failure_labels={"attempt": str(entry.attempt)},
        concurrent_exceptions=[],
    )


def _task_counts(report: JobMasterStatus | None) -> TaskCounts:
    if report is None:
        return TaskCounts()
    return TaskCounts(
        total=report.active_tasks + report.completed_tasks if report.work is None else report.work.total_tasks,
        running=report.active_tasks,
        finished=report.completed_tasks,
        failed=report.failed_tasks,
    )


def _executors_registered(view: JobView) -> int:
    report = view.report
    return 0 if report is None else sum(executor.registered for executor in report.executors)


def _duration(view: JobView, now_ms: int) -> int:
    return max(0, (now_ms if view.ended_ms is None else view.ended_ms) - view.submitted_ms)


def _or_never(time_ms: int | None) -> int:
    return NEVER if time_ms is None else time_ms
