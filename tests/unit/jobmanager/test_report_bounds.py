"""The JobManager keeps what drivers report, which run the jobs' own code. So texts, lists and keys are bounded."""

from __future__ import annotations

import msgspec
from structlog.testing import capture_logs

from emberkeep.jobs.model import MOST_TEXT, ExceptionEntry
from emberkeep.jobs.progress.work import AttemptWork, StageProgress
from emberkeep.jobs.traces.recovery_trace import TraceReport
from emberkeep.lifecycle.model import Procedure, ProcedurePhase, ProcedureProgress
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import graph
from tests.unit.jobmanager.jobs.test_watches import progress
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id
HUGE = "x" * 1_000_000


def test_the_texts_of_a_status_are_bounded() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            failed = ProcedureProgress(
                trigger_id="a" * 32,
                phase=ProcedurePhase.FAILED,
                failure=HUGE,
                detail=HUGE,
                procedure=Procedure.SAVEPOINT,
            )
            await master.beat(
                waiting=HUGE,
                queries=(msgspec.structs.replace(progress(1), name=HUGE, status=HUGE),),
                exceptions=(ExceptionEntry(timestamp_ms=1, attempt=1, kind="E", message=HUGE, traceback=HUGE),),
                functions=(HUGE,),
                procedure=failed,
            )
            view = await cluster.view(JOB)
            assert len(view.waiting) == MOST_TEXT
            assert len(msgspec.json.encode(view.status_report)) < 20 * MOST_TEXT
            assert len(msgspec.json.encode(view.exceptions)) < 4 * MOST_TEXT

    in_virtual_time(scenario)


def test_the_lists_and_keys_of_a_status_are_bounded_and_that_is_said_once() -> None:
    stage = StageProgress(
        stage_id=1, stage_attempt=0, name="s", status="ACTIVE", tasks=1, active=1, completed=0, failed=0
    )

    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            with capture_logs() as logs:
                for _ in range(3):
                    await master.beat(
                        queries=(progress(1),) * 50_000,
                        functions=("f",) * 50_000,
                        trace=TraceReport(milestones={f"{number:050}": 1.0 for number in range(50_000)} | {HUGE: 1.0}),
                        work=AttemptWork(stages=(stage,) * 50_000),
                    )
            report = (await cluster.view(JOB)).status_report
            assert report is not None
            assert len(report.queries) == 1000
            assert len(msgspec.json.encode(report)) < 2_000_000
            (said,) = (each for each in logs if "reports more than is kept" in each["event"])
            assert (said["job"], said["attempt"]) == (JOB, 1)
            assert said["dropped"]["status.queries"] == 49_000
            assert said["dropped"]["status.trace.milestones"] == 49_001
            assert said["dropped"].keys() >= {"status.functions", "status.work.stages"}

    in_virtual_time(scenario)


def test_what_is_long_everywhere_fits_into_one_bound() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore())
        async with cluster.leading():
            await cluster.add()
            master = await cluster.run_job()
            long = msgspec.structs.replace(progress(1), name=HUGE[:MOST_TEXT], status=HUGE[:MOST_TEXT])
            await master.beat(queries=(long,) * 1000, functions=(HUGE,))
            report = (await cluster.view(JOB)).status_report
            assert report is not None
            assert len(msgspec.json.encode(report)) < 9_000_000
            assert 200 < len(report.queries) < 300

    in_virtual_time(scenario)
