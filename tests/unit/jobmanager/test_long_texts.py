"""The JobManager keeps what drivers report, which run the jobs' own code. So the texts in it are bounded."""

from __future__ import annotations

import msgspec

from emberkeep.jobs.model import MOST_TEXT, ExceptionEntry
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
