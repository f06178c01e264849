"""Whole jobs are put back for a guarantee: their drivers stay, and they continue when slots are free again."""

from __future__ import annotations

import pytest

from tests.campaign import seeds
from tests.simulation.elastic.test_reclaimed_slots import (
    BOUND,
    FAULT_BOUND,
    FAULTS,
    GUARANTEED,
    HARMLESS,
    SLOTS,
    World,
    check_rest,
    registered,
    work_of,
)
from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Run, play
from tests.support.simulator.virtual_loop import seeded_random

pytestmark = [pytest.mark.campaign, pytest.mark.req("RES-6"), pytest.mark.req("RES-7")]

# Who has taken every slot, and gives nothing back as long as it may keep its minimum.
LOW = {
    "gang": Script(seconds=None, executors=SLOTS, namespace="a", priority=-100, gang=True),
    "fixed": Script(seconds=None, executors=SLOTS, namespace="a", priority=-100),
}
# "fixed" gives all but one executor first, and the guarantee is for all slots.
GUARANTEES = {"gang": GUARANTEED, "fixed": SLOTS}


async def tell(run: Run, kind: str, fault: str, seed: int) -> None:
    rng = seeded_random(f"whole-{kind}-{seed}", fault)
    guaranteed = GUARANTEES[kind]
    world = World(run, run.cluster.submit("low", LOW[kind]))
    await world.until(lambda: registered(run, world.borrower) == SLOTS, 60.0, "the stream has taken every slot")
    driver = work_of(run, world.borrower)

    entitled = Script(seconds=None, executors=guaranteed, namespace="b", gang=True)
    world.entitled = run.cluster.submit("entitled", entitled)
    await FAULTS[fault](world, rng)
    bound = BOUND + (0.0 if fault == "nothing" else FAULT_BOUND)
    job = world.entitled
    await world.until(lambda: registered(run, job) == guaranteed, bound, "the gang has all that it is guaranteed")
    await world.until(lambda: registered(run, world.borrower) == 0, FAULT_BOUND, "the other one waits")
    if fault in HARMLESS and work_of(run, world.borrower) is not driver:
        run.cluster.history.violate("scenario", "the driver of the job that was put back did not stay")
    await check_rest(world)

    run.cluster.cancel(job)
    await world.until(lambda: registered(run, world.borrower) == SLOTS, 60.0, "it continues with all its executors")
    await run.end_everything()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", LOW)
def test_a_job_is_put_back_as_a_whole_and_continues(kind: str, fault: str) -> None:
    for seed in seeds(2, theme=f"whole {kind} {fault}"):
        plan = ClusterPlan(
            seed=f"whole-{kind}-{fault}-{seed}",
            task_managers=2,
            slots=SLOTS // 2,
            files=False,
            options={
                "security.quota.guaranteed-slots": f"b={GUARANTEES[kind]}",
                "slotmanager.preemption": "jobs",
            },
        )
        report = play(plan, lambda run, seed=seed: tell(run, kind, fault, seed))  # type: ignore[misc]
        assert not report.violations, report.failure()
