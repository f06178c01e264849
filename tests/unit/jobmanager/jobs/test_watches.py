"""The watchdog in the Dispatcher: from reports of JobMasters to alarms, notifications and restarts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import msgspec
import pytest

from emberkeep.base.errors import Conflict
from emberkeep.chronicle.occurrence import What
from emberkeep.jobmanager.jobs.health.watches import query_facts
from emberkeep.jobs.checkpoints import QueryCheckpoint
from emberkeep.jobs.model import AttemptOutcome, FailureKind, JobStatus
from emberkeep.jobs.progress.records import SourceProgress
from emberkeep.jobs.progress.totals import QueryTotals
from emberkeep.notifications.model import EventKind, Notification
from emberkeep.protocol.messages.job_master_reports import QueryProgress
from emberkeep.watchdog.model import AlarmKind, QueryFacts
from tests.unit.jobmanager.cluster import SmallCluster, in_virtual_time
from tests.unit.jobmanager.fakes import FakeJobMaster, graph, status
from tests.unit.jobmanager.memory_store import FailingStore

JOB = graph(1).job_id
STUCK = {"watchdog.commit.first-time": "60s", "watchdog.commit.min-time": "60s"}
KILLED = AttemptOutcome(exit_code=137, kind=FailureKind.LOST, message="killed by SIGKILL")
SUCCESS = AttemptOutcome(exit_code=0)


@dataclass
class Heard:
    """A Notifier that keeps what it is told."""

    notifications: list[Notification] = field(default_factory=list)

    def notify(self, notification: Notification) -> None:
        self.notifications.append(notification)

    def events(self) -> list[EventKind]:
        return [each.event for each in self.notifications]


def progress(look: int, text: str = "Processing new data") -> QueryProgress:
    return QueryProgress(
        id="id 1",
        run_id="run 1",
        name="delays",
        batch_id=7,
        timestamp=str(look),
        num_input_rows=0,
        input_rows_per_second=0.0,
        processed_rows_per_second=0.0,
        state_rows=12,
        watermark="",
        status=text,
        checkpoint_location="/checkpoints/1",
        state_bytes=4_096,
        backlog_rows=300,
    )


def commit(batch: int, query_id: str = "id 1") -> QueryCheckpoint:
    return QueryCheckpoint(
        query="delays",
        query_id=query_id,
        location="/checkpoints/1",
        batch_id=batch,
        triggered_ms=1_000,
        committed_ms=3_500,
    )


async def works(master: FakeJobMaster, seconds: int, batch: int = 1) -> None:
    """Report the query each second, without a new commit."""
    for look in range(seconds):
        await asyncio.sleep(1.0)
        await master.beat(queries=(progress(look),), checkpoints=(commit(batch),))


async def stuck_job(cluster: SmallCluster) -> FakeJobMaster:
    """Run a job until the alarm is raised that its query does not commit."""
    await cluster.add()
    master = await cluster.run_job()
    await works(master, 65)
    return master


def test_facts_come_from_the_report_of_the_query_and_its_newest_commit() -> None:
    reported = status(queries=(progress(3, "Waiting for data to arrive"),), checkpoints=(commit(4), commit(9, "id 2")))
    assert query_facts(reported) == [
        QueryFacts(
            id="id 1",
            label="delays",
            batch=4,
            duration=2.5,
            seen="3",
            waits=True,
            state_rows=12,
            state_bytes=4096,
            backlog=300,
        )
    ]
    (without,) = query_facts(status(queries=(progress(3),)))
    assert (without.batch, without.waits) == (-1, False)


def test_facts_have_what_sources_count_themselves() -> None:
    sources = (
        SourceProgress(description="files", metrics={"numFilesOutstanding": 7, "numBytesOutstanding": 4096}),
        SourceProgress(description="shards", metrics={"maxMsBehindLatest": 1500}),
    )
    reading = msgspec.structs.replace(progress(3), backlog_rows=None, sources=sources)
    (facts,) = query_facts(status(queries=(reading,)))
    assert (facts.backlog, facts.files, facts.size, facts.behind) == (None, 7, 4096, 1.5)


def test_a_query_whose_commits_are_pushed_out_of_the_report_by_those_of_others_still_commits() -> None:
    others = tuple(commit(9, f"other {number}") for number in range(50))
    counted = msgspec.structs.replace(progress(3), totals=QueryTotals(batches=5, duration_ms=10_000))
    (facts,) = query_facts(status(queries=(counted,), checkpoints=others))
    assert (facts.batch, facts.duration) == (4, 2.0)


def test_an_alarm_is_shown_and_told_until_the_query_commits() -> None:
    async def scenario() -> None:
        heard = Heard()
        cluster = SmallCluster(FailingStore(), STUCK, notifier=heard)
        async with cluster.leading():
            master = await stuck_job(cluster)
            (alarm,) = (await cluster.view(JOB)).alarms
            assert (alarm.kind, alarm.query) == (AlarmKind.NO_COMMIT, "delays")
            (told,) = heard.notifications
            assert (told.event, told.alarm, told.query) == (EventKind.ALARM_RAISED, "no-commit", "delays")
            assert (told.job.id, told.job.name, told.job.attempt) == (JOB, "job 1", 1)
            assert told.message == alarm.message
            noted = [each for each in cluster.chronicle.stream(JOB) if each.what == What.ALARM_RAISED]
            assert [(each.message, each.details) for each in noted] == [
                (alarm.message, {"kind": "no-commit", "query": "delays"})
            ]
            await works(master, 1, batch=2)
            assert (await cluster.view(JOB)).alarms == ()
            assert heard.events() == [EventKind.ALARM_RAISED, EventKind.ALARM_CLEARED]
            assert len({each.id for each in heard.notifications}) == 2
            assert (await cluster.view(JOB)).attempt == 1

    in_virtual_time(scenario)


def test_the_driver_is_restarted_if_the_job_asks_for_it() -> None:
    async def scenario() -> None:
        heard = Heard()
        cluster = SmallCluster(FailingStore(), notifier=heard)
        async with cluster.leading():
            task_manager = await cluster.add()
            master = await cluster.run_job(options={**STUCK, "watchdog.restart": "true"})
            with pytest.raises(Conflict, match="was abandoned"):  # so a driver that is out of reach ends itself
                await works(master, 70)
            await cluster.reaches(JOB, JobStatus.RESTARTING)
            await cluster.holds(lambda: task_manager.stopped)
            task_manager.exits(JOB, 1, KILLED)
            second = await cluster.next_jobmaster(JOB, 2)
            await works(second, 5)
            view = await cluster.view(JOB)
            assert [alarm.kind for alarm in view.alarms] == [AlarmKind.NO_COMMIT]
            assert view.attempts[0].outcome is not None
            assert view.attempts[0].outcome.message.startswith("restarted by the watchdog: query delays: no micro-")
            assert heard.events() == [EventKind.ALARM_RAISED, EventKind.JOB_RESTARTING]
            await works(second, 1, batch=2)
            assert (await cluster.view(JOB)).alarms == ()

    in_virtual_time(scenario)


def test_a_restart_storm_is_an_alarm_of_the_job() -> None:
    async def scenario() -> None:
        heard = Heard()
        cluster = SmallCluster(FailingStore(), {"watchdog.restarts.max": "1"}, notifier=heard)
        async with cluster.leading():
            task_manager = await cluster.add()
            await cluster.run_job()
            for attempt in (1, 2):
                task_manager.exits(JOB, attempt, KILLED)
                await cluster.next_jobmaster(JOB, attempt + 1)
            (alarm,) = (await cluster.view(JOB)).alarms
            assert (alarm.kind, alarm.query) == (AlarmKind.RESTARTS, "")
            assert heard.events().count(EventKind.ALARM_RAISED) == 1

    in_virtual_time(scenario)


def test_restarts_under_an_earlier_leader_count_for_a_storm() -> None:
    async def scenario() -> None:
        cluster = SmallCluster(FailingStore(), {"watchdog.restarts.max": "2"})
        async with cluster.leading():
            task_manager = await cluster.add()
            await cluster.run_job()
            for attempt in (1, 2):
                task_manager.exits(JOB, attempt, KILLED)
                await cluster.next_jobmaster(JOB, attempt + 1)
            assert (await cluster.view(JOB)).alarms == ()
        async with cluster.leading() as service:
            await cluster.next_jobmaster(JOB, 3)
            history = service._seat.leader.dispatcher._table.active[JOB].state.history
            await cluster.holds(lambda: len(history.attempts()) == 3)
            assert (await cluster.view(JOB)).alarms == ()
            task_manager.exits(JOB, 3, KILLED)
            await cluster.next_jobmaster(JOB, 4)
            (alarm,) = (await cluster.view(JOB)).alarms
            assert alarm.kind is AlarmKind.RESTARTS

    in_virtual_time(scenario)


def test_an_alarm_that_an_earlier_leader_has_left_open_is_cleared_once() -> None:
    async def scenario() -> None:
        heard = Heard()
        cluster = SmallCluster(FailingStore(), STUCK, notifier=heard)
        async with cluster.leading():
            await stuck_job(cluster)
        assert heard.events() == [EventKind.ALARM_RAISED]
        for _ in range(2):
            async with cluster.leading():
                await cluster.next_jobmaster(JOB, 1)
                await cluster.holds(lambda: len(heard.events()) == 2)
                await asyncio.sleep(5.0)
                raised, cleared = heard.notifications
                assert (cleared.event, cleared.alarm, cleared.query) == (
                    EventKind.ALARM_CLEARED,
                    raised.alarm,
                    raised.query,
                )
        noted = [each.what for each in cluster.chronicle.stream(JOB) if each.what.startswith("alarm")]
        assert noted == [What.ALARM_RAISED, What.ALARM_CLEARED]

    in_virtual_time(scenario)


def test_an_alarm_that_this_leader_has_raised_while_it_read_the_earlier_ones_stays_raised() -> None:
    async def scenario() -> None:
        heard = Heard()
        cluster = SmallCluster(FailingStore(), STUCK, notifier=heard)
        async with cluster.leading() as service:
            await stuck_job(cluster)
            dispatcher = service._seat.leader.dispatcher
            job = dispatcher._table.active[JOB]
            (alarm,) = job.watch.alarms
            earlier = msgspec.structs.replace(alarm, since_ms=1)
            dispatcher._watches.left_open(job, (earlier, msgspec.structs.replace(earlier, query="other")))
            await cluster.holds(lambda: len(heard.notifications) == 2)
            assert [(each.event, each.query) for each in heard.notifications] == [
                (EventKind.ALARM_RAISED, "delays"),
                (EventKind.ALARM_CLEARED, "other"),
            ]

    in_virtual_time(scenario)


def test_the_end_of_a_job_is_told_and_ends_its_alarms() -> None:
    async def scenario() -> None:
        heard = Heard()
        cluster = SmallCluster(FailingStore(), STUCK, notifier=heard)
        async with cluster.leading():
            master = await stuck_job(cluster)
            await master.ends(SUCCESS)
            view = await cluster.reaches(JOB, JobStatus.FINISHED)
            assert view.alarms == ()
            assert set(heard.events()[1:]) == {EventKind.ALARM_CLEARED, EventKind.JOB_FINISHED}

    in_virtual_time(scenario)
