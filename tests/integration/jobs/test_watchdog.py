"""A stream that hangs in its own code: people are told everywhere, the watchdog restarts it if asked, and all is well
again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberkeep.base.ids import JobId
from emberkeep.watchdog.model import AlarmKind
from tests.integration.clusters import QUICK, Cluster, kill_process
from tests.integration.commands import Shell
from tests.integration.conditions import until
from tests.integration.jobs.webhook_receiver import SECRET, Receiver, receiving
from tests.integration.streams import SCRIPT, Stream

pytestmark = [pytest.mark.integration, pytest.mark.long]

# The driver whose pid is in the file hangs in its next batch, as long as the file is there.
HANG = """def store(frame, number):
    import time
    while (place / "hang").exists() and (place / "hang").read_text() == str(os.getpid()):
        time.sleep(0.1)
"""
# The first batch of an attempt is cold; the others take well below a second, even on a busy machine below 10 s.
WATCHED = ("-D", "watchdog.commit.min-time=10s", "-D", "watchdog.commit.first-time=2min")
QUICK_RESTART = ("-D", "restart-strategy.type=fixed-delay", "-D", "restart-strategy.fixed-delay.delay=100ms")
# Arguments: a directory. In a batch it reads at most as many numbers as the file "pace" says, up to that in "arrived".
# It says as Kafka does how far it could read. All numbers stay in the state.
NUMBERS = """
import sys
from dataclasses import dataclass
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

place = Path(sys.argv[1])

@dataclass
class Span(InputPartition):
    first: int
    end: int

class Reader(DataSourceStreamReader):
    def __init__(self, place):
        self._place = Path(place)

    def _said(self, name):
        return int((self._place / name).read_text())

    def initialOffset(self):
        return {"read": 0}

    def latestOffset(self, start, limit):
        return {"read": max(start["read"], min(start["read"] + self._said("pace"), self._said("arrived")))}

    def reportLatestOffset(self):
        return {"read": self._said("arrived")}

    def partitions(self, start, end):
        return [Span(start["read"], end["read"])] if start != end else []

    def read(self, partition):
        return ((number,) for number in range(partition.first, partition.end))

class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "value long"

    def streamReader(self, schema):
        return Reader(self.options["place"])

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
spark.dataSource.register(Numbers)
numbers = spark.readStream.format("numbers").option("place", str(place)).load().dropDuplicates(["value"])
query = numbers.writeStream.queryName("numbers").trigger(processingTime="500 milliseconds").format("noop").start()
while not (place / "finish").exists() and not query.awaitTermination(0.3):
    pass
query.stop()
"""
# The times and bounds of the alarms, so that a test need not wait for minutes.
LOW_BOUNDS = (
    *("-D", "watchdog.backlog.growing-for=3s", "-D", "watchdog.backlog.min-rows=100"),
    *("-D", "watchdog.state.max-rows=50", "-D", "watchdog.restarts.max=1"),
)


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, class_archive: Path, receiver: Receiver) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("watchdog")
    secret = directory / "webhook.secret"
    secret.touch(0o600)
    secret.write_text(SECRET)
    cluster = Cluster(Shell(directory / "cluster", class_archive.parent))
    settings = {
        "url": receiver.url,
        "secret-file": str(secret),
        "events": "alarm-raised,alarm-cleared,job-restarting,job-finished",
    }
    words = [word for name, value in settings.items() for word in ("-D", f"notifications.webhook.{name}={value}")]
    try:
        cluster.up(*QUICK, *words, "--slots", "1")
        yield cluster
        cluster.cancel_all()
    finally:
        cluster.close()


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path / "counts")


def submit(cluster: Cluster, stream: Stream, *options: str) -> JobId:
    assert SCRIPT.count("def store(frame, number):\n") == 1
    script = stream.place.with_name("counts.py")
    script.write_text(SCRIPT.replace("def store(frame, number):\n", HANG))
    return cluster.submit(script, *WATCHED, *options, arguments=(str(stream.place), "queryName=counts"))


def hang(stream: Stream, pid: int) -> None:
    aside = stream.place / "hang.new"
    aside.write_text(str(pid))
    aside.rename(stream.place / "hang")


def wait_for_batches(cluster: Cluster, job_id: JobId, stream: Stream, count: int) -> None:
    wanted = stream.batches() + count
    until(lambda: stream.batches() >= wanted, lambda: cluster.story(job_id))


def alarms(cluster: Cluster, job_id: JobId) -> list[tuple[AlarmKind, str]]:
    return [(alarm.kind, alarm.query) for alarm in cluster.job(job_id).emberkeep.alarms]


def events(cluster: Cluster, job_id: JobId) -> list[tuple[str, dict[str, str]]]:
    """Those of the watchdog, in order."""
    types = ("alarm-raised", "alarm-cleared")
    found = cluster.ask(lambda client: client.events.newest(job_id, {}, types, 100))
    return [(event.type, event.details) for event in found]


def metric(cluster: Cluster, job_id: JobId) -> list[str]:
    """The alarms that Prometheus reads: "<query> <kind> <value>"."""
    lines = [line for line in cluster.metrics().splitlines() if line.startswith("emberkeep_alarm{") and job_id in line]
    labels = [dict(re.findall(r'(\w+)="([^"]*)"', line)) | {"value": line.rsplit(" ", 1)[1]} for line in lines]
    return [f"{each['query']} {each['kind']} {each['value']}" for each in labels]


def say(place: Path, name: str, number: int) -> None:
    """Replace a file that the source of the stream reads."""
    aside = place / f"{name}.new"
    aside.write_text(str(number))
    aside.rename(place / name)


def notices(receiver: Receiver, job_id: JobId) -> list[tuple[str, Any, Any]]:
    return [(event["event"], event["alarm"], event["query"]) for event in receiver.events(job_id)]


RAISED, CLEARED = ("alarm-raised", "no-commit", "counts"), ("alarm-cleared", "no-commit", "counts")
DETAILS = {"kind": "no-commit", "query": "counts"}
ALARMS = (("backlog", "numbers"), ("state", "numbers"), ("restarts", ""))


def test_an_alarm_is_raised_everywhere_and_cleared_when_the_stream_goes_on(
    cluster: Cluster, receiver: Receiver, stream: Stream
) -> None:
    job_id = submit(cluster, stream)
    driver = cluster.wait_for_driver(job_id)
    wait_for_batches(cluster, job_id, stream, 5)
    assert alarms(cluster, job_id) == []
    hang(stream, driver)
    until(lambda: alarms(cluster, job_id) == [(AlarmKind.NO_COMMIT, "counts")], lambda: cluster.story(job_id))
    until(lambda: notices(receiver, job_id) == [RAISED], lambda: str(notices(receiver, job_id)))
    assert receiver.refused == receiver.events(job_id)[0]["id"], "it was sent again after the answer 503"
    until(lambda: events(cluster, job_id) == [("alarm-raised", DETAILS)], lambda: str(events(cluster, job_id)))
    assert metric(cluster, job_id) == ["counts no-commit 1.0"]
    assert "no-commit" in cluster.shell.done("info", job_id).out

    (stream.place / "hang").unlink()
    until(lambda: not alarms(cluster, job_id), lambda: cluster.story(job_id))
    until(lambda: notices(receiver, job_id) == [RAISED, CLEARED], lambda: str(notices(receiver, job_id)))
    both = [("alarm-raised", DETAILS), ("alarm-cleared", DETAILS)]
    until(lambda: events(cluster, job_id) == both, lambda: str(events(cluster, job_id)))
    assert metric(cluster, job_id) == []
    assert cluster.job(job_id).emberkeep.attempt == 1, "nobody has asked for a restart"
    stream.finish()
    cluster.wait_for_end(job_id)
    stream.check()
    assert receiver.forged == []


def test_a_stream_that_hangs_is_restarted_if_its_job_asks_for_it(
    cluster: Cluster, receiver: Receiver, stream: Stream
) -> None:
    job_id = submit(cluster, stream, "-D", "watchdog.restart=true", *QUICK_RESTART)
    driver = cluster.wait_for_driver(job_id)
    wait_for_batches(cluster, job_id, stream, 5)
    hang(stream, driver)
    assert cluster.wait_for_driver(job_id, attempt=2) != driver
    wait_for_batches(cluster, job_id, stream, 3)
    until(lambda: not alarms(cluster, job_id), lambda: cluster.story(job_id))
    stream.finish()
    cluster.wait_for_end(job_id)
    stream.check()
    assert len(stream.drivers()) == 2
    ended = ("job-finished", "", "")
    until(lambda: ended in notices(receiver, job_id), lambda: str(notices(receiver, job_id)))
    assert notices(receiver, job_id) == [RAISED, ("job-restarting", "", ""), CLEARED, ended]
    (restart,) = (event for event in receiver.events(job_id) if event["event"] == "job-restarting")
    assert "watchdog" in restart["message"]
    assert receiver.forged == []


def test_a_backlog_a_large_state_and_restarts_are_seen_in_what_spark_reports(
    cluster: Cluster, receiver: Receiver, tmp_path: Path
) -> None:
    script = tmp_path / "numbers.py"
    script.write_text(NUMBERS)
    for name in ("pace", "arrived"):
        say(tmp_path, name, 10)
    job_id = cluster.submit(script, *WATCHED, *LOW_BOUNDS, *QUICK_RESTART, arguments=(str(tmp_path),))

    def shows(*expected: tuple[AlarmKind, str]) -> None:
        until(lambda: sorted(alarms(cluster, job_id), key=str) == sorted(expected, key=str), lambda: story(job_id))
        kinds = sorted(f"{query} {kind.value} 1.0" for kind, query in expected)
        until(lambda: sorted(metric(cluster, job_id)) == kinds, lambda: story(job_id))

    def story(job_id: JobId) -> str:
        return f"{alarms(cluster, job_id)}\n{cluster.job(job_id).emberkeep.queries}\n{cluster.story(job_id)}"

    cluster.wait_for(job_id, lambda job: [query.state_rows for query in job.emberkeep.queries] == [10], "10 are read")
    assert alarms(cluster, job_id) == []
    say(tmp_path, "arrived", 2000)
    shows((AlarmKind.BACKLOG, "numbers"), (AlarmKind.STATE, "numbers"))
    newest = json.loads(cluster.shown(f"/v1/jobs/{job_id}/progress?limit=1"))["records"][-1]
    (source,) = newest["sources"]
    read = json.loads(source["end-offset"])["read"]
    assert json.loads(source["latest-offset"]) == {"read": 2000}
    assert newest["backlog-rows"] == source["backlog-rows"] == 2000 - read > 0
    assert source["backlog-seconds"] == pytest.approx((2000 - read) / source["processed-rows-per-second"])
    say(tmp_path, "pace", 2000)
    shows((AlarmKind.STATE, "numbers"))
    for attempt in (1, 2):
        kill_process(cluster.wait_for_driver(job_id, attempt))
    cluster.wait_for_driver(job_id, attempt=3)
    shows((AlarmKind.RESTARTS, ""), (AlarmKind.STATE, "numbers"))

    (tmp_path / "finish").touch()
    cluster.wait_for_end(job_id)
    # Each was raised once and cleared once, in all places.
    changes = [(change, kind, query) for kind, query in ALARMS for change in ("alarm-raised", "alarm-cleared")]
    told = [(event, *details.values()) for event, details in events(cluster, job_id)]
    assert sorted(told) == sorted(changes)

    def noticed() -> list[tuple[str, Any, Any]]:
        return sorted(each for each in notices(receiver, job_id) if each[0].startswith("alarm-"))

    until(lambda: noticed() == sorted(changes), lambda: str(noticed()))
    assert receiver.forged == []
