"""A stream is upgraded to new code while leaders, drivers and the store fail: one version runs, from the savepoint."""

from __future__ import annotations

import contextvars
from collections import Counter
from collections.abc import Callable

import pytest

from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from tests.campaign import seeds, seldom
from tests.simulation.test_crash_points import AWAY, Death, check_handles, points, runs, wait_for
from tests.simulation.test_procedures import wait_seconds
from tests.support.simulator.cluster import ClusterPlan, SubmittedJob
from tests.support.simulator.scripts import Script
from tests.support.simulator.simulation import Report, Run, play
from tests.support.upgrades.simulated import SimUpgrade

GOOD = Script(seconds=None)
RAISES = Script(seconds=1.0, raises=True)  # it fails again after each restart
NEVER_COMMITS = Script(seconds=None, bad_executors=True)
PERIODIC = {"execution.savepoint.interval": "2s", "execution.savepoint.retained": "2"}  # one is often being made
SEEDS = seeds(6, theme="upgrades")
STORED_AT_LEAST = {f"store, after upgrade {phase}" for phase in ("STOPPING", "STARTING", "WATCHING")}


def begun(
    run: Run, script: Script, within: float = 30.0, options: dict[str, str] | None = None
) -> tuple[SubmittedJob, SimUpgrade]:
    stream = run.cluster.submit("stream", GOOD, options)
    return stream, SimUpgrade(run.cluster, stream, script, within=within)


def has_ended(upgrade: SimUpgrade) -> bool:
    return upgrade.record is not None and upgrade.record.phase.is_final


def status(run: Run, job: SubmittedJob) -> JobStatus | None:
    found = run.cluster.store.recorded.get(job.job_id) if job.job_id is not None else None
    return None if found is None else found.status


def check_end(run: Run, upgrade: SimUpgrade, *phases: UpgradePhase) -> None:
    """It has ended in one of these phases, and the version that this means runs; no other one does."""
    violate, record = run.cluster.history.violate, upgrade.record
    if record is None or record.phase not in phases:
        violate("scenario", f"the upgrade is {None if record is None else (record.phase, record.reason)}, not {phases}")
        return
    running = {
        UpgradePhase.DONE: upgrade.new,
        UpgradePhase.RETURNED: upgrade.back,
        UpgradePhase.UNCHANGED: upgrade.job,
    }[record.phase]
    for job in (upgrade.job, upgrade.new, upgrade.back):
        is_stored = job.job_id in run.cluster.store.disk.jobs
        if is_stored is not (job is running):
            violate("scenario", f"the upgrade is {record.phase.value}, and {job.name} {job.job_id} runs: {is_stored}")


def lived(death: Death, script: Script, phase: UpgradePhase) -> Report:
    """A stream runs and is upgraded. Nothing dies but what the death kills."""

    async def story(run: Run) -> None:
        death.watch(run)
        stream, upgrade = begun(run, script, within=12.0)
        await wait_for(run, lambda: runs(run, stream), "the stream runs")
        upgrade.ask()
        await wait_for(run, lambda: has_ended(upgrade), "the upgrade has ended")
        check_end(run, upgrade, phase)
        await run.settle()
        if status(run, stream) is not JobStatus.FINISHED:
            run.cluster.history.violate("scenario", f"the old job is {status(run, stream)}")
        written = run.cluster.truth.savepoints
        # A driver that dies before the end of the stop is recorded leaves the savepoint to the next attempt.
        if set(written) != {upgrade.upgrade_id} or (written.total() > 1 and not death.with_drivers):
            run.cluster.history.violate("scenario", f"written: {written}")
        await run.end_everything()
        check_handles(run)

    return play(ClusterPlan(seed="upgrades", task_managers=2), story)


def steps(script: Script, phase: UpgradePhase) -> list[str]:
    death = Death()
    report = lived(death, script, phase)
    assert not report.violations, report.failure()
    stored = {" ".join((*each.split(" ")[:3], each.split(" ")[-1])) for each in death.steps if " upgrade " in each}
    assert stored >= STORED_AT_LEAST, stored
    return death.steps


def in_upgrade(every: list[str]) -> list[int]:
    """Where to end a leader: at the steps from the request on until the upgrade has ended."""
    first = every.index("receives upgrade")
    last = max(number for number, what in enumerate(every) if " upgrade " in what)
    return [at for at in points(every) if first <= at <= last]


@pytest.mark.req("HA-5")
@pytest.mark.parametrize(
    ("script", "phase"), [(GOOD, UpgradePhase.DONE), (RAISES, UpgradePhase.RETURNED)], ids=["good", "bad"]
)
def test_a_leader_killed_at_any_step_of_an_upgrade_changes_nothing_about_its_end(
    script: Script, phase: UpgradePhase
) -> None:
    chosen = in_upgrade(steps(script, phase))
    failures = []
    for at in chosen:
        report = lived(Death(at), script, phase)
        if report.violations:
            failures.append(f"{at}: {report.failure()}")
    assert not failures, f"{len(failures)} of {len(chosen)} crash points\n" + failures[0]


@pytest.mark.req("HA-5")
@pytest.mark.req("HA-7")
def test_leader_and_driver_killed_together_at_any_step_only_delay_an_upgrade() -> None:
    chosen = in_upgrade(steps(GOOD, UpgradePhase.DONE))
    failures = []
    for at in chosen:
        report = lived(Death(at, with_drivers=True), GOOD, UpgradePhase.DONE)
        if report.violations:
            failures.append(f"{at}: {report.failure()}")
    assert not failures, f"{len(failures)} of {len(chosen)} crash points\n" + failures[0]


def drivers_lost(run: Run, upgrade: SimUpgrade, phase: UpgradePhase, *, leader_dies: bool) -> list[str]:
    """Kill the drivers that live once the phase is stored, or the first one to start in it. Return whom it was."""
    cluster, lost = run.cluster, list[str]()
    # Once a job is submitted, the next phase is usually stored before its driver starts. Here, that takes longer.
    cluster.store.refused = {UpgradePhase.STARTING: "WATCHING", UpgradePhase.RETURNING: "RETURNED"}.get(phase, "")

    def strike() -> None:
        victims = list(cluster.machines.drivers())
        if lost or upgrade.phases[-1:] != [phase] or not victims:
            return
        lost.extend(each.name for each in victims)
        cluster.store.refused = ""
        if leader_dies:
            cluster.kill_job_manager()
            run.loop.call_later(AWAY, cluster.start_job_manager, context=contextvars.Context())
        for each in victims:
            cluster.machines.kill(each)

    def started(_: object) -> None:
        run.loop.call_soon(strike, context=contextvars.Context())  # once its task manager knows that it has started

    cluster.store.on_upgrade.append(lambda _: strike())
    cluster.machines.on_start.append(started)
    return lost


@pytest.mark.req("HA-5")
@pytest.mark.req("HA-7")
@pytest.mark.parametrize("leader_dies", [False, True], ids=["alone", "with-the-leader"])
@pytest.mark.parametrize(
    ("phase", "script", "end"),
    [
        (UpgradePhase.STOPPING, GOOD, UpgradePhase.DONE),
        (UpgradePhase.STARTING, GOOD, UpgradePhase.DONE),
        (UpgradePhase.WATCHING, GOOD, UpgradePhase.DONE),
        (UpgradePhase.CANCELLING, NEVER_COMMITS, UpgradePhase.RETURNED),
        (UpgradePhase.RETURNING, NEVER_COMMITS, UpgradePhase.RETURNED),
    ],
    ids=lambda value: value.value if isinstance(value, UpgradePhase) else "",
)
def test_a_driver_lost_in_a_phase_delays_the_upgrade(
    phase: UpgradePhase, script: Script, end: UpgradePhase, leader_dies: bool
) -> None:
    """The old driver, the new one, or that of the old code which comes back: the one that lives in the phase."""

    async def story(run: Run) -> None:
        stream, upgrade = begun(run, script, within=50.0 if script is GOOD else 12.0)
        lost = drivers_lost(run, upgrade, phase, leader_dies=leader_dies)
        await wait_for(run, lambda: runs(run, stream), "the stream runs")
        upgrade.ask()
        await wait_for(run, lambda: lost, f"a driver is lost, {phase.value}")
        await until(run, lambda: has_ended(upgrade))
        check_end(run, upgrade, end)
        await run.settle()
        await run.end_everything()

    report = play(ClusterPlan(seed=f"driver lost {phase.value}", task_managers=2), story)
    assert not report.violations, report.failure()


def troubled(number: int) -> Report:
    """Drivers and leaders die, and the store is slow, refuses and does not answer, while a stream is upgraded."""

    async def story(run: Run) -> None:
        cluster, rng = run.cluster, run.cluster.store.rng
        script = rng.choice((GOOD, GOOD, RAISES, NEVER_COMMITS))
        stream, upgrade = begun(run, script, options=PERIODIC if rng.random() < 0.5 else None)
        await wait_for(run, lambda: runs(run, stream), "the stream runs")
        cluster.store.trouble = 0.2
        upgrade.ask()
        for _ in range(rng.randrange(3, 8)):
            await wait_seconds(run, rng.uniform(0.1, 6.0))
            drivers = [work.process for work in cluster.room.drivers.values() if work.process.alive]
            fate = rng.random()
            if fate < 0.4 and drivers:
                cluster.machines.kill(rng.choice(drivers))
                cluster.history.count("driver died")
            elif fate < 0.45 and upgrade.answer:
                upgrade.cancel()
            elif cluster.jm_process is not None and cluster.jm_process.alive:
                cluster.kill_job_manager()
                cluster.history.count("leader died")
                await wait_seconds(run, 0.5)
                cluster.start_job_manager()
        cluster.store.trouble = 0.0
        await wait_for(run, lambda: upgrade.answer, "the upgrade is answered")
        if upgrade.answer == "done":
            await until(run, lambda: has_ended(upgrade))
            await run.settle(200.0)
            check_end(run, upgrade, UpgradePhase.DONE, UpgradePhase.RETURNED, UpgradePhase.UNCHANGED)
            cluster.history.count(f"upgrade {upgrade.record.phase.value}" if upgrade.record else "none")
        await run.end_everything()

    return play(ClusterPlan(seed=f"upgrade {number}", task_managers=2), story)


async def until(run: Run, condition: Callable[[], bool]) -> None:
    for _ in range(4):
        if condition():
            return
        await wait_seconds(run, 50.0)
    run.cluster.history.violate("scenario", "the upgrade does not end")


@pytest.mark.campaign
@pytest.mark.req("HA-5")
def test_an_upgrade_ends_with_one_version_running_although_drivers_leaders_and_the_store_fail() -> None:
    reports = [troubled(number) for number in SEEDS]
    failures = [report.failure() for report in reports if report.violations]
    assert not failures, f"{len(failures)} of {len(SEEDS)}\n{failures[0]}"
    met = sum((report.counts for report in reports), Counter[str]())
    wanted = {"driver died": 1, "leader died": 1, "upgrade DONE": 1, "upgrade RETURNED": 1}
    assert not seldom(met, wanted), met
