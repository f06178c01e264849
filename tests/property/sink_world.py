"""A file system in memory that fails at a chosen step, and a Spark that plans, repeats and commits batches of rows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from emberkeep.api.file_sink.arrivals import Arrival
from emberkeep.api.file_sink.model import FileFormat, Limits, SinkWriter
from emberkeep.api.file_sink.part_writer import PartWriter, SinkPlaces
from emberkeep.api.file_sink.ports import ListedFile
from emberkeep.api.file_sink.rolling import needed
from emberkeep.base.errors import Absent, Conflict, RetryLater

Row = tuple[str, int]  # bucket, value
OUTPUT, WORK = "/out", "/_emberkeep-out"


class Died(BaseException):
    """The process is gone in the middle of whatever it did."""


@dataclass
class Failing:
    """Fails once, at the ``countdown``-th step from now: before it is done, or after."""

    countdown: int
    done: bool
    error: Callable[[], BaseException]


class MemoryFiles:
    """Implements SinkFiles. ``steps``: how many steps have changed something."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.steps = 0
        self.failing: Failing | None = None
        self.seen: Callable[[], None] = lambda: None  # called after each step

    def change(self, action: Callable[[], None]) -> None:
        self.steps += 1
        failing = self.failing
        if failing is not None:
            failing.countdown -= 1
        fails = failing is not None and failing.countdown < 0
        if failing is None or not fails or failing.done:
            action()
            self.seen()
        if failing is not None and fails:
            self.failing = None
            raise failing.error()

    def read(self, path: str) -> bytes:
        if path not in self.content:
            raise Absent(path)
        return self.content[path]

    def create(self, path: str, data: bytes) -> None:
        if path in self.content:
            raise Conflict(path)
        self.change(lambda: self.content.update({path: data}))

    def names(self, directory: str) -> list[str]:
        below = [path.removeprefix(f"{directory}/") for path in self.content if path.startswith(f"{directory}/")]
        return sorted({path.split("/")[0] for path in below})

    def files(self, directory: str) -> list[ListedFile]:
        if not self.names(directory):
            raise RetryLater(directory)
        return [
            ListedFile(path=path.removeprefix(f"{directory}/"), size=len(data))
            for path, data in sorted(self.content.items())
            if path.startswith(f"{directory}/")
        ]

    def move(self, source: str, target: str) -> None:
        def rename() -> None:
            if source in self.content:
                moved = self.content.pop(source)
                assert self.content.setdefault(target, moved) is moved, "two parts of one name"

        self.change(rename)

    def keep(self, paths: Sequence[str], root: str) -> None:
        assert all(path in self.content for path in paths)

    def delete(self, path: str) -> None:
        def remove() -> None:
            for name in [name for name in self.content if name == path or name.startswith(f"{path}/")]:
                del self.content[name]

        self.change(remove)

    def visible(self) -> Counter[Row]:
        """What a reader of the output sees."""
        rows: Counter[Row] = Counter()
        for path, data in self.content.items():
            if path.startswith(f"{OUTPUT}/"):
                rows.update((bucket, value) for bucket, value in json.loads(data))
        return rows


@dataclass
class MemoryFrames:
    """Implements Frames: a frame is a list of rows, a file is JSON of rows, written step by step."""

    files: MemoryFiles
    commits: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # by checkpoint
    evaluated: list[object] = field(default_factory=list)

    def schema(self, frame: list[Row]) -> str:
        return "even" if len(frame) % 5 else "other"

    def stage(self, frame: list[Row], directory: str) -> None:
        self.evaluated.append(frame)
        for number, bucket in enumerate(sorted({bucket for bucket, _ in frame})):
            mine = [row for row in frame if row[0] == bucket]
            for part, rows in enumerate((mine[::2], mine[1::2])):
                name = f"{bucket}/part-{part:05d}-{number}-c000.x.parquet".removeprefix("/")
                self._write(f"{directory}/{name}", rows)
        if not frame:
            self._write(f"{directory}/part-00000-0-c000.x.parquet", [])

    def evaluate(self, frame: list[Row]) -> None:
        self.evaluated.append(frame)

    def rows(self, paths: Sequence[str]) -> list[int]:
        return [len(json.loads(self.files.read(path))) for path in paths]

    def merge(self, paths: Sequence[str], schema: str, directory: str, *, is_part: bool) -> None:
        rows = [row for path in paths for row in json.loads(self.files.read(path))]
        ending = "json" if is_part else "x.parquet"
        self._write(f"{directory}/part-00000-m-c000.{ending}", rows)

    def committed(self, checkpoint: str, newest: int) -> int | None:
        return max((batch for batch in self.commits[checkpoint] if batch <= newest), default=None)

    def _write(self, path: str, rows: Sequence[Row]) -> None:
        self.files.change(lambda: self.files.content.update({path: json.dumps(rows).encode()}))


class World:
    """One streaming query with its checkpoint, restarted again and again, and its sink."""

    def __init__(self, limits: Limits, form: FileFormat = FileFormat.PARQUET) -> None:
        self.files = MemoryFiles()
        self.frames = MemoryFrames(self.files)
        self.limits = limits
        self.form = form
        self.now_ms = 0
        self.attempt = 0
        self.planned: dict[int, tuple[str, list[Row]]] = {}  # the offset log, with the rows that it leads to
        self.committed: list[list[Row]] = []
        self.shown: dict[str, bytes] = {}
        self.checkpoint = "c"
        self._values = 0
        self._plans = 0
        self.files.seen = self.check
        self.writer = self.restart()

    def restart(self, restored: tuple[str, int] | None = None) -> PartWriter:
        """A new attempt; whoever wrote before is not told. Returns its writer."""
        self.attempt += 1
        owner = SinkWriter(job_id="job", attempt=self.attempt, writer=f"w{self.attempt}")
        places = SinkPlaces(output=OUTPUT, work=WORK)
        self.writer = PartWriter(
            self.files, self.frames, places, owner, self.form, self.limits, lambda: self.now_ms, restored=restored
        )
        return self.writer

    def start_query(self) -> None:
        """It goes on from its checkpoint; no batch has come yet."""
        self.writer.newest()
        self.writer.continues("another", "elsewhere")
        self.writer.continues("q", self.checkpoint)

    def move_checkpoint(self) -> None:
        """As a savepoint does that another job starts from; the old place is gone."""
        before, self.checkpoint = self.checkpoint, f"{self.checkpoint}'"
        self.frames.commits[self.checkpoint] = self.frames.commits.pop(before, set())

    def run_batch(self, buckets: Sequence[str] = ("",)) -> None:
        """Plan the next batch, unless it is planned, give it to the sink, commit it. ``buckets``: of its rows."""
        batch = len(self.committed)
        if batch not in self.planned:
            self._plans += 1
            self.planned[batch] = (f"plan-{self._plans}", [(bucket, self._value()) for bucket in buckets])
        plan, rows = self.planned[batch]
        arrival = Arrival(query="q", checkpoint=self.checkpoint, batch=batch, plan=plan)
        self.writer.write_batch(arrival, rows)
        assert self.frames.evaluated[-1] is rows, "each batch is computed, or Spark's state of it is missing"
        self._commit(rows)

    def go_back(self, batches: int) -> None:
        """An older checkpoint is put back: what it knows ends after so many batches."""
        self.committed = self.committed[:batches]
        self.planned = {batch: plan for batch, plan in self.planned.items() if batch < batches}
        self.frames.commits[self.checkpoint] = set(range(batches))

    def finish(self) -> None:
        """All sources have ended: everything that was committed becomes visible."""
        self.writer.close_parts()
        self.writer.publish()
        self.writer.clean_up()

    def check(self) -> None:
        """At every step: no row twice, none of a batch that Spark has not committed, nothing shown disappears."""
        expected = Counter(row for rows in self.committed for row in rows)
        assert self.files.visible() <= expected
        now = {path: data for path, data in self.files.content.items() if path.startswith(f"{OUTPUT}/")}
        assert self.shown.items() <= now.items(), "a committed file was changed or removed"
        self.shown = now

    def check_finished(self) -> None:
        expected = Counter(row for rows in self.committed for row in rows)
        assert self.files.visible() == expected
        left = {path for path in self.files.content if path.startswith(f"{WORK}/") and "/log/" not in path}
        assert not left, "the work directory holds nothing but the log"

    def check_bounded(self) -> None:
        """While the query runs: of this writer nothing is there but what its newest state names."""
        state = self.writer._state
        assert state is not None
        named = {"/".join(path.split("/")[:2]) for path in needed(state)}
        found = {f"{kind}/{name}" for kind in ("staging", "merged") for name in self.files.names(f"{WORK}/{kind}")}
        own = {directory for directory in found if f"-w{self.attempt}-" in directory}
        assert own <= named, f"left behind: {own - named}"

    def _commit(self, rows: list[Row]) -> None:
        self.frames.commits[self.checkpoint].add(len(self.committed))
        self.committed.append(rows)

    def _value(self) -> int:
        self._values += 1
        return self._values


def lost_answer() -> RetryLater:
    return RetryLater("the answer was lost")
