"""Translates the state of the Spark runtime into the JobMaster's terms."""

from __future__ import annotations

from datetime import UTC, datetime

from emberkeep.autoscale.model import AutoscaleSettings
from emberkeep.base.configuration.options.autoscaling import AUTOSCALE
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import ExecutorId
from emberkeep.daemons.driver.spark.first_times import first_times
from emberkeep.jobmaster.ports import BlocksLeft, DynamicAllocation, ExecutorDemand, SparkQuestions, SparkView
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.protocol.messages.job_master_reports import QueryProgress
from emberkeep.spark import model as spark_model
from emberkeep.spark.doors.flows import known_flows
from emberkeep.spark.driver_runtime import DriverRuntime
from emberkeep.spark.executors import blocks as spark_blocks
from emberkeep.spark.executors.allocation import DynamicAllocation as SparkAllocation

_CANCELLED_AFTER = 30.0  # seconds, by autoscaling


def spark_view(runtime: DriverRuntime, asked: SparkQuestions) -> SparkView:
    """Return the current state of Spark, see ``SparkDriver.view``. Calls into the JVM. Raises SparkUnavailable."""
    cordoned = frozenset(ExecutorId(executor) for executor in runtime.cordon(asked.cordoned))
    times = first_times(runtime, asked.milestones)
    work = runtime.work()
    now = datetime.now(UTC).isoformat(timespec="seconds")
    seen = runtime.streaming_progress(asked.reported)
    queries = tuple(
        QueryProgress(
            id=query.id,
            run_id=query.run_id,
            name=query.name or "",
            batch_id=query.batch_id,
            timestamp=now,
            num_input_rows=query.num_input_rows,
            input_rows_per_second=query.input_rows_per_second,
            processed_rows_per_second=query.processed_rows_per_second,
            state_rows=query.state_rows,
            watermark=query.watermark or "",
            status=query.status,
            checkpoint_location=query.checkpoint_location or "",
            state_bytes=query.state_bytes,
            backlog_rows=query.backlog_rows,
            late_rows=query.late_rows,
            state_commit_ms=query.state_commit_ms,
            sources=query.sources,
        )
        for query in seen
        if query.is_active
    )
    executors = frozenset(ExecutorId(executor) for executor in runtime.executor_ids())
    return SparkView(
        executors=executors,
        silent=frozenset(ExecutorId(executor) for executor in runtime.silent_executors(executors & asked.doubted)),
        queries=queries,
        work=work,
        takers=frozenset(ExecutorId(executor) for executor in runtime.block_takers()) if asked.leaving else frozenset(),
        blocks={ExecutorId(key): _blocks(left) for key, left in runtime.blocks_left(asked.leaving | cordoned).items()},
        cordoned=cordoned,
        excluded=frozenset(ExecutorId(executor) for executor in runtime.excluded_executors()),
        lacking_space=frozenset(ExecutorId(executor) for executor in runtime.lacking_space(work.failed_tasks)),
        functions=runtime.functions.with_state(),
        times=times,
        reports=tuple(report for query in seen for report in query.reports),
        flows=known_flows(),
        commits=tuple(_commit(query, query.checkpoint_location) for query in seen if query.checkpoint_location),
    )


def executor_demand(runtime: DriverRuntime) -> ExecutorDemand:
    """Return what Spark's dynamic allocation wants. Calls into the JVM. Raises SparkUnavailable."""
    demand = runtime.executor_demand()
    return ExecutorDemand(
        app_id=demand.app_id,
        count=demand.count,
        decommissioned=frozenset(ExecutorId(executor) for executor in demand.decommissioned),
        killed=frozenset(ExecutorId(executor) for executor in demand.killed),
        others=demand.others,
    )


def dynamic_allocation(
    dynamic: SparkAllocation | None, autoscale: AutoscaleSettings | None
) -> DynamicAllocation | None:
    """Return how the number changes; None if it is fixed. Raises InvalidInput if two would decide."""
    if autoscale is None:
        if dynamic is None:
            return None
        return DynamicAllocation(minimum=dynamic.minimum, maximum=dynamic.maximum, idle_timeout=dynamic.idle_seconds)
    if dynamic is not None:
        raise InvalidInput(
            f"both spark.dynamicAllocation.enabled and {AUTOSCALE.key} are true: only one can decide how many "
            "executors the job has",
            field=AUTOSCALE.key,
            hint="turn one of them off; see docs/autoscaling.md",
        )
    return DynamicAllocation(
        minimum=autoscale.minimum, maximum=autoscale.maximum, idle_timeout=_CANCELLED_AFTER, autoscale=autoscale
    )


def _blocks(left: spark_blocks.ExecutorBlocks) -> BlocksLeft:
    return BlocksLeft(shuffle=left.shuffle, cached=left.cached, at_least=left.at_least, tasks=left.tasks)


def _commit(query: spark_model.ObservedQuery, location: str) -> QueryCheckpoint:
    return QueryCheckpoint(
        query=query.name or location.rstrip("/").rpartition("/")[2],
        query_id=query.id,
        location=location,
        batch_id=query.committed_batch,
        triggered_ms=query.triggered_ms,
        committed_ms=query.committed_ms,
    )
