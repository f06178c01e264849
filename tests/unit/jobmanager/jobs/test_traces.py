"""Recovery traces in a JobManager: collected, logged, and learned again by the next leader."""

from __future__ import annotations

import asyncio

import msgspec
from structlog.testing import capture_logs

from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.jobs.traces.recovery_trace import RecoveryCause, RecoveryTrace, TraceReport
from emberkeep.slots.model import ProcessStart
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, graph
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST)


async def _trace(cluster: SmallCluster) -> RecoveryTrace:
    return (await cluster.view(JOB)).traces[-1]


def _names(trace: RecoveryTrace) -> list[str]:
    return [reached.milestone.value for reached in trace.milestones]


def test_a_restart_is_traced_across_a_takeover() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            task_manager = await cluster.add()
            await cluster.run_job()
            task_manager.exits(JOB, 1, KILLED)
            await cluster.holds(lambda: cluster.host(JOB, 2))
            report = task_manager.drivers[JOB, 2]
            task_manager.drivers[JOB, 2] = msgspec.structs.replace(report, start=ProcessStart.HOT)
            master = FakeJobMaster(cluster.service, JOB, 2)
            await asyncio.sleep(2.0)
            own = TraceReport(age=0.5)
            reply = await master.register(trace=own)
            assert reply.trace is not None
            own = TraceReport(
                age=3.5,
                milestones={**reply.trace.milestones, "context-up": 1.5},
                cause=reply.trace.cause,
                delay=reply.trace.delay,
                start=reply.trace.start,
            )
            await asyncio.sleep(3.0)
            assert (await master.beat(trace=own)).trace is None, "the driver lacks nothing"
            first = await _trace(cluster)
            assert (first.cause, first.delay, first.start) == (RecoveryCause.LOST, 1.0, ProcessStart.HOT)
            assert _names(first) == [
                *("detected", "decided", "gone", "place-requested", "placed", "ordered", "process-started"),
                *("registered", "context-up"),
            ]
        async with cluster.leading():
            await asyncio.sleep(5.0)
            master = FakeJobMaster(cluster.service, JOB, 2)
            master.sequence = 10
            assert _names(await _trace(cluster)) == []
            later = TraceReport(
                age=own.age + 5.0, milestones=own.milestones, cause=own.cause, delay=own.delay, start=own.start
            )
            assert (await master.register(trace=later)).trace is None
            second = await _trace(cluster)
            assert _names(second) == _names(first)
            assert [round(each.seconds, 3) for each in second.milestones] == [
                round(each.seconds, 3) for each in first.milestones
            ]
            assert (second.cause, second.delay, second.start) == (first.cause, first.delay, first.start)

    in_virtual_time(scenario)


def test_a_driver_of_the_previous_release_reports_no_trace_and_gets_none() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            assert (await master.beat()).trace is None
            assert _names(await _trace(cluster))[-1] == "registered"

    in_virtual_time(scenario)


def test_each_milestone_is_logged_once() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            for _ in range(2):
                await master.beat(trace=TraceReport(age=2.0, milestones={"context-up": 1.5}))

    with capture_logs() as logs:
        in_virtual_time(scenario)
    logged = [entry for entry in logs if entry["event"] == "attempt reached a milestone"]
    names = [entry["milestone"] for entry in logged]
    assert names[0] == "submitted"
    assert names[-2:] == ["registered", "context-up"]
    assert len(set(names)) == len(names)
    assert {(entry["job"], entry["attempt"], entry["cause"]) for entry in logged} == {(JOB, 1, "submission")}
