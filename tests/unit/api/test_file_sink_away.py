"""The output of a RollingFileSink on a file system that is away for a while: no row is lost without an error."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from emberkeep.api import RollingFileSink, rolling_file_sink
from emberkeep.api.earlier_commits import EarlierCommits
from emberkeep.api.file_sink.arrivals import Arrival, claimed, received, written
from emberkeep.api.file_sink.commit_log import CommitLog
from emberkeep.api.file_sink.errors import OutputUnavailable
from emberkeep.api.file_sink.local_files import LocalFiles
from emberkeep.api.file_sink.model import FileFormat, Limits, SinkWriter
from emberkeep.api.file_sink.part_writer import PartWriter, SinkPlaces
from emberkeep.api.file_sink.ports import ListedFile
from emberkeep.base.errors import RetryLater
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries import committed_before
from tests.property.sink_world import MemoryFrames, Row

pytestmark = pytest.mark.req("SAFE-1")

FIRST = SinkWriter(job_id="1" * 32, attempt=1, writer="w1")
SECOND = msgspec.structs.replace(FIRST, attempt=2, writer="w2")


class Mount:
    """A mount point; while the mount is away, the directory is there and empty."""

    def __init__(self, place: Path) -> None:
        self.point = place / "mount"
        self.point.mkdir()
        self._away = place / "away"
        self._hidden = place / "hidden"
        self.log = f"{self.point}/_emberkeep-events/log"

    def go_away(self) -> None:
        self.point.rename(self._away)
        self.point.mkdir()

    def come_back(self) -> None:
        self.point.rename(self._hidden)
        self._away.rename(self.point)


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    return Mount(tmp_path)


def arrival(batch: int, committed_before: int = -1) -> Arrival:
    return Arrival(query="q", checkpoint="c", batch=batch, plan=f"p{batch}", committed_before=committed_before)


class Sink:
    """One attempt's writer, as far as its log."""

    def __init__(self, mount: Mount, owner: SinkWriter) -> None:
        self.log = CommitLog(LocalFiles(), mount.log)
        self.state = claimed(self.log.read(), owner, 1.0, "out")
        self.log.append(self.state)

    def take(self, batch: int, committed_before: int = -1) -> None:
        state = received(self.state, arrival(batch, committed_before), "out")
        assert state is not None
        state = written(state, arrival(batch), (), ("key", "schema"))
        self.log.append(state)
        self.state = state


def test_a_running_sink_does_not_write_on_into_the_bare_mount_point(mount: Mount) -> None:
    sink = Sink(mount, FIRST)
    for batch in range(100):  # old entries of the log are deleted meanwhile
        sink.take(batch)
    mount.go_away()
    with pytest.raises(OutputUnavailable, match="existed before and is missing now"):
        sink.take(100)
    with pytest.raises(OutputUnavailable):
        sink.log.read()
    assert not list(mount.point.rglob("*.record")), "nothing that would be hidden later"
    mount.come_back()
    sink.take(100)
    kept = CommitLog(LocalFiles(), mount.log).read()
    assert kept is not None
    assert kept.last_batch == 100


def test_an_entry_made_while_the_mount_goes_away_is_taken_back(mount: Mount) -> None:
    class GoesAway(LocalFiles):
        def create(self, path: str, data: bytes) -> None:
            mount.go_away()
            super().create(path, data)

    sink = Sink(mount, FIRST)
    sink.log._files = GoesAway()
    with pytest.raises(OutputUnavailable):
        sink.take(0)
    assert not list(mount.point.rglob("*.record"))


def test_the_next_attempt_does_not_begin_in_the_middle(mount: Mount) -> None:
    Sink(mount, FIRST).take(0)
    mount.go_away()
    with pytest.raises(OutputUnavailable, match="batches up to 0 to out, but the output has none"):
        Sink(mount, SECOND).take(1, committed_before=0)
    again = Sink(mount, SECOND)  # it finds the entry of an attempt that has written no batch
    with pytest.raises(OutputUnavailable, match="submit the job again"):
        again.take(1, committed_before=0)
    mount.come_back()
    Sink(mount, msgspec.structs.replace(SECOND, attempt=3)).take(1, committed_before=0)


def test_a_new_output_of_a_query_that_has_run_elsewhere_is_begun(mount: Mount) -> None:
    Sink(mount, FIRST).take(41)


def test_a_batch_whose_pieces_cannot_be_listed_is_no_batch_without_rows(mount: Mount) -> None:
    class Frames(MemoryFrames):
        def stage(self, frame: list[Row], directory: str) -> None:
            Path(directory).mkdir(parents=True)
            (Path(directory) / "part-00000-c000.x.parquet").write_text(str(frame))

        def rows(self, paths: Sequence[str]) -> list[int]:
            return [1] * len(paths)

    class Away(LocalFiles):
        is_next = True

        def files(self, directory: str) -> list[ListedFile]:
            if not self.is_next:
                return super().files(directory)
            self.is_next = False
            mount.go_away()
            try:
                return super().files(directory)
            finally:
                mount.come_back()

    places = SinkPlaces(output=f"{mount.point}/events", work=f"{mount.point}/_emberkeep-events")
    frames = Frames(None)  # type: ignore[arg-type]
    writer = PartWriter(Away(), frames, places, FIRST, FileFormat.PARQUET, Limits(max_bytes=10**6), lambda: 0)
    with pytest.raises(RetryLater):
        writer.write_batch(arrival(0), [("", 1)])
    writer.write_batch(arrival(0), [("", 1)])
    kept = CommitLog(LocalFiles(), mount.log).read()
    assert kept is not None
    assert len(kept.pieces) == 1, "the batch's rows wait"


def test_a_part_on_a_mount_that_is_away_does_not_count_as_moved(mount: Mount) -> None:
    output, work = f"{mount.point}/events", f"{mount.point}/_emberkeep-events"

    class GoesAway(LocalFiles):
        is_next = True

        def move(self, source: str, target: str) -> None:
            if self.is_next:
                self.is_next = False
                mount.go_away()
            super().move(source, target)

    writer = PartWriter(
        GoesAway(),
        FileFrames(),
        SinkPlaces(output=output, work=work),
        FIRST,
        FileFormat.PARQUET,
        Limits(max_bytes=1),
        lambda: 0,
    )
    writer.write_batch(arrival(0), [("", 1)])
    with pytest.raises(OutputUnavailable):
        writer.write_batch(arrival(1), [("", 2)])  # batch 0 is committed: its part is shown now
    mount.come_back()
    writer.write_batch(arrival(1), [("", 2)])
    assert [path.read_text() for path in Path(output).iterdir()] == ["[('', 1)]"]


class FileFrames(MemoryFrames):
    """Writes a batch as one file below a real directory."""

    def __init__(self, committed_before: int = -1) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self._committed_before = committed_before

    def stage(self, frame: list[Row], directory: str) -> None:
        Path(directory).mkdir(parents=True)
        (Path(directory) / "part-00000-c000.x.parquet").write_text(str(list(frame)))

    def rows(self, paths: object) -> list[int]:
        return [1]

    def arrival(self, frame: object, batch: int) -> Arrival:
        del frame
        return arrival(batch, self._committed_before)


class Frame(list[Row]):
    sparkSession = None  # noqa: N815 - Spark's name


def sink_on(mount: Mount, owner: SinkWriter, committed_before: int = -1) -> RollingFileSink:
    """A sink as foreachBatch calls it, without Spark. Each batch makes a part once the next one comes."""
    places = SinkPlaces(output=f"{mount.point}/events", work=f"{mount.point}/_emberkeep-events")
    frames = FileFrames(committed_before)
    sink = RollingFileSink(places.output)
    sink._frames = cast(Any, frames)
    sink._writer = PartWriter(LocalFiles(), frames, places, owner, FileFormat.PARQUET, Limits(max_bytes=1), lambda: 0)
    return sink


def shown(mount: Mount) -> list[str]:
    return sorted(path.read_text() for path in (mount.point / "events").iterdir())


@pytest.mark.parametrize("is_next_attempt", [False, True])
def test_a_batch_waits_for_its_output_and_is_written_then(
    mount: Mount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_next_attempt: bool
) -> None:
    looks = 0

    def come_back_at_the_third_look(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            assert not (mount.point / "_emberkeep-events" / "staging").exists(), "no rows in the bare mount point"
            mount.come_back()

    monkeypatch.setattr(rolling_file_sink, "time", SimpleNamespace(sleep=come_back_at_the_third_look))
    sink = sink_on(mount, FIRST)
    for batch in range(80):  # old entries of the log are deleted meanwhile
        sink(Frame([("", batch)]), batch)
    mount.go_away()
    if is_next_attempt:
        sink = sink_on(mount, SECOND, committed_before=79)
    sink(Frame([("", 80)]), 80)
    assert looks == 3
    assert capsys.readouterr().err.count("emberkeep: batch 80 waits for its output: ") == 1
    sink(Frame([("", 81)]), 81)
    assert shown(mount) == sorted(str([("", batch)]) for batch in range(81))


def test_a_checkpoint_is_known_under_each_form_of_its_location() -> None:
    commits = EarlierCommits()
    commits.note("/data/checkpoints/q", 7)
    assert [commits.newest(place) for place in ("file:/data/checkpoints/q", "file:///data/checkpoints/q/")] == [7, 7]
    assert commits.newest("/data/checkpoints/other") == -1


@pytest.mark.parametrize("mark", ["#", "?"])
def test_checkpoints_whose_paths_begin_alike_are_told_apart(mark: str) -> None:
    commits = EarlierCommits()
    commits.note(f"webhdfs://localhost/data{mark}1/q", 7)
    assert commits.newest(f"webhdfs://localhost/data{mark}1/q") == 7
    assert commits.newest(f"webhdfs://localhost/data{mark}2/q") == -1, "its sink would wait for batches without end"


def test_checkpoints_with_one_path_in_several_buckets_are_told_apart() -> None:
    commits = EarlierCommits()
    commits.note("s3a://one/q", 7)
    commits.note("s3a://two/q", 3)
    places = ("s3a://one/q", "s3a://two/q", "s3a://three/q", "/q")
    assert [commits.newest(place) for place in places] == [7, 3, -1, 7]
    commits.note("/default/q", 5)
    assert commits.newest("hdfs://nn:8020/default/q") == 5, "the default file system may be that one"
    assert commits.newest("HDFS://NN/default/q") == 5


def test_what_the_job_store_knows_of_a_checkpoint_reaches_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = EarlierCommits()
    monkeypatch.setattr(committed_before, "EARLIER_COMMITS", commits)
    known = committed_before.CommittedBefore({"/data/q": 7}, Notices())
    with contextlib.suppress(AttributeError):  # there is no Spark that could look at the checkpoint
        known.check(None, "/data/q", "http://gateway/data/q")
    assert commits.newest("http://gateway/data/q") == 7
