"""The rolling file sink and the death of its process at every step: every row once, nothing half or taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from emberkeep.api.file_sink.arrivals import Arrival
from emberkeep.api.file_sink.errors import BatchesMissing, OutputIsAhead, OutputOfAnotherQuery, SinkFenced
from emberkeep.api.file_sink.model import FileFormat, Limits, Piece, SinkState
from emberkeep.api.file_sink.model import SinkWriter as Writer
from emberkeep.api.file_sink.part_writer import PartWriter, SinkPlaces
from emberkeep.api.file_sink.rolling import Merge, TakeAsPart, due
from emberkeep.base.errors import EmberkeepError, RetryLater
from tests.campaign import examples
from tests.property.sink_world import OUTPUT, WORK, Died, Failing, World, lost_answer

SMALL = Limits(max_bytes=120, max_rows=9, max_age_ms=1_000)


def life(world: World) -> None:
    """All that changes files: batches with and without rows, parts by size, by age, at a savepoint, at the end."""
    world.run_batch(["a"] * 3)
    world.run_batch([])
    world.run_batch(["a", "b", "b"] * 2)
    world.now_ms += 2_000
    world.writer.show_what_is_due()
    world.run_batch(["a"] * 20)
    world.run_batch(["b"])
    world.writer.close_parts()
    world.writer.publish()
    world.run_batch(["a", "c"])
    world.run_batch(["c"])
    world.finish()


def carried_on(world: World, batches: int) -> None:
    """What the next attempt does with what a crash has left."""
    world.restart()
    while len(world.committed) < batches:
        world.run_batch(["a", "b"])
    world.finish()
    world.check_finished()


def steps_of_a_life(form: FileFormat) -> tuple[int, int]:
    world = World(SMALL, form)
    life(world)
    world.check_finished()
    return world.files.steps, len(world.committed)


@pytest.mark.req("END-7")
@pytest.mark.parametrize("form", [FileFormat.PARQUET, FileFormat.JSON])
@pytest.mark.parametrize("done", [False, True])
def test_a_process_that_dies_at_any_step_leaves_what_the_next_one_finishes(form: FileFormat, done: bool) -> None:
    steps, batches = steps_of_a_life(form)
    assert steps > 50
    for step in range(steps):
        world = World(SMALL, form)
        world.files.failing = Failing(step, done, Died)
        with pytest.raises(Died):
            life(world)
        carried_on(world, batches)


@pytest.mark.parametrize("done", [False, True])
def test_a_step_that_fails_is_done_again_by_the_same_process(done: bool) -> None:
    steps, batches = steps_of_a_life(FileFormat.PARQUET)
    failed = 0
    for step in range(steps):
        world = World(SMALL)
        world.files.failing = Failing(step, done, lost_answer)
        try:
            life(world)  # a file that could not be deleted stops nobody
        except RetryLater:
            failed += 1
            while len(world.committed) < batches:
                world.run_batch(["a", "b"])
            world.finish()
            world.writer.clean_up()
        world.writer.clean_up()
        world.check_finished()
    assert failed > 20


@pytest.mark.req("SAFE-21")
@pytest.mark.parametrize("buckets", [[], ["a"]])
def test_a_query_that_runs_for_long_leaves_nothing_of_batches_without_rows(buckets: list[str]) -> None:
    world = World(Limits(max_bytes=10_000, max_rows=None, max_age_ms=None))
    most = 0
    for number in range(300):
        world.run_batch(buckets if number % 30 == 0 else [])
        world.check_bounded()
        most = max(most, *(len(world.files.names(f"{WORK}/{kind}")) for kind in ("staging", "log")))
    assert most <= 64, "the commit log keeps some entries"
    assert len(world.files.names(OUTPUT)) <= 1


@pytest.mark.req("SAFE-21")
@pytest.mark.parametrize("done", [False, True])
def test_what_a_failed_batch_has_written_is_gone_with_the_next_one(done: bool) -> None:
    for step in range(12):
        world = World(SMALL)
        world.run_batch(["a"])
        for _ in range(20):
            world.files.failing = Failing(step, done, lost_answer)
            with suppress(RetryLater):
                world.run_batch(["a", "b"])
            world.files.failing = None
            world.run_batch(["b"])
            world.check_bounded()


class SinkLives(RuleBasedStateMachine):
    """Attempts follow each other, die anywhere, wake up again after they were superseded; savepoints are restored."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(SMALL)
        self.old: list[PartWriter] = []
        self.done = False

    def _do(self, action: Callable[[], None], fails_after: int | None, done: bool, dies: bool) -> None:
        if fails_after is not None:
            self.world.files.failing = Failing(fails_after, done, Died if dies else lost_answer)
        try:
            action()
        except Died:
            self.world.restart()
        except RetryLater:
            pass
        finally:
            self.world.files.failing = None

    failures = st.one_of(st.none(), st.integers(0, 12))

    @rule(buckets=st.lists(st.sampled_from("ab"), max_size=12), fails=failures, done=st.booleans(), dies=st.booleans())
    def batch(self, buckets: list[str], fails: int | None, done: bool, dies: bool) -> None:
        self._do(lambda: self.world.run_batch(buckets), fails, done, dies)
        if fails is None:
            self.world.check_bounded()

    @rule(ms=st.integers(0, 3_000), fails=failures, done=st.booleans(), dies=st.booleans())
    def time_passes(self, ms: int, fails: int | None, done: bool, dies: bool) -> None:
        self.world.now_ms += ms
        self._do(self.world.writer.show_what_is_due, fails, done, dies)

    @rule(fails=failures, done=st.booleans(), dies=st.booleans())
    def drained(self, fails: int | None, done: bool, dies: bool) -> None:
        def drain() -> None:
            self.world.writer.close_parts()
            self.world.writer.publish()

        self._do(drain, fails, done, dies)

    @rule()
    def query_starts(self) -> None:
        self.world.start_query()

    @rule(is_restored=st.booleans())
    def savepoint_of_now(self, is_restored: bool) -> None:
        """Another job starts from it: with another checkpoint, the old one is gone."""
        restored = self.world.writer.committed() if is_restored else None
        self.world.move_checkpoint()
        self.world.restart(restored)

    @rule()
    def superseded(self) -> None:
        self.old.append(self.world.writer)
        self.world.restart()
        self.world.writer.newest()  # takes over

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def wakes_up(self, data: st.DataObject) -> None:
        writer = data.draw(st.sampled_from(self.old))
        before = self.world.files.visible()
        arrival = Arrival(query="q", checkpoint="c", batch=len(self.world.committed), plan="of an old attempt")
        with pytest.raises(EmberkeepError):
            writer.write_batch(arrival, [("a", -1)])
        for action in (writer.close_parts, writer.publish, writer.show_what_is_due):
            with suppress(EmberkeepError):  # what it works on may be gone; or there was nothing to do
                action()
        assert self.world.files.visible() == before

    @precondition(lambda self: self.world.committed)
    @rule(data=st.data(), buckets=st.lists(st.sampled_from("ab"), min_size=1, max_size=5), finishes=st.booleans())
    def older_savepoint(self, data: st.DataObject, buckets: list[str], finishes: bool) -> None:
        """Either nobody has seen a row of what came after it, or the sink says that it cannot go on. ``finishes``: the
        query has started, and no batch has come."""
        back = data.draw(st.integers(0, len(self.world.committed)))
        before = self.world.committed, dict(self.world.planned), set(self.world.frames.commits[self.world.checkpoint])
        self.world.go_back(back)
        seen, self.world.files.seen = self.world.files.seen, lambda: None
        self.world.restart()
        try:
            self.world.start_query()
            if finishes:
                self.world.now_ms += 5_000
                self.world.writer.show_what_is_due()
                self.world.writer.close_parts()
                self.world.writer.publish()
            self.world.run_batch(buckets)
        except OutputIsAhead:
            self.world.committed, self.world.planned = before[0], before[1]
            self.world.frames.commits[self.world.checkpoint] = before[2]
            self.world.restart()
        finally:
            self.world.files.seen = seen

    @invariant()
    def nothing_is_wrong(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.files.failing = None
        self.world.run_batch(["a"])  # one that was interrupted comes again
        self.world.restart()
        self.world.start_query()
        self.world.finish()
        self.world.check_finished()


TestSinkLives = SinkLives.TestCase
TestSinkLives.settings = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)


# --- single decisions -------------------------------------------------------------------------------------------------


def piece(batch: int, size: int, *, bucket: str = "", since: int = 0, schema: str = "s") -> Piece:
    path = f"staging/{batch}/{bucket}/{schema}{size}"
    return Piece(first=batch, last=batch, bucket=bucket, path=path, size=size, schema=schema, since_ms=since)


def state_of(*pieces: Piece) -> SinkState:
    owner = Writer(job_id="", attempt=0, writer="w")
    return SinkState(owner=owner, growth=1.0, pieces=pieces, last_batch=max(p.last for p in pieces))


def test_a_large_piece_is_not_written_twice_and_a_small_rest_waits() -> None:
    large, small, late = piece(0, 1_000), piece(1, 10), piece(2, 240)
    limits = Limits(max_bytes=1_000)
    assert due(state_of(large, small), limits, FileFormat.PARQUET, 0, through=1) == (TakeAsPart(piece=large),)
    assert due(state_of(large, small), limits, FileFormat.JSON, 0, through=1) == (Merge(pieces=(large,), is_part=True),)
    assert due(state_of(small, late), limits, FileFormat.PARQUET, 0, through=2) == ()
    assert due(state_of(small, late), limits, FileFormat.PARQUET, 0, through=2, everything=True) == (
        Merge(pieces=(small, late), is_part=True),
    )


def test_pieces_of_a_quarter_of_the_size_are_parts_as_they_are_and_the_small_ones_between_wait() -> None:
    first, small, second, third = piece(0, 300), piece(1, 10), piece(2, 250), piece(3, 600)
    limits = Limits(max_bytes=1_000)
    assert due(state_of(first, small, second), limits, FileFormat.PARQUET, 0, through=2) == ()
    work = due(state_of(first, small, second, third), limits, FileFormat.PARQUET, 0, through=3)
    assert work == (TakeAsPart(piece=first), TakeAsPart(piece=second), TakeAsPart(piece=third))
    work = due(state_of(first, small, second), limits, FileFormat.PARQUET, 0, through=2, everything=True)
    assert work == (TakeAsPart(piece=first), TakeAsPart(piece=second), TakeAsPart(piece=small))


def test_what_is_not_committed_is_left_alone() -> None:
    limits = Limits(max_bytes=10)
    assert due(state_of(piece(3, 100)), limits, FileFormat.PARQUET, 0, through=2, everything=True) == ()


def test_age_counts_for_each_bucket() -> None:
    old, young = piece(0, 1, bucket="day=1"), piece(1, 1, bucket="day=2", since=500)
    limits = Limits(max_bytes=1_000, max_age_ms=600)
    assert due(state_of(old, young), limits, FileFormat.PARQUET, 700, through=1) == (TakeAsPart(piece=old),)


def test_many_small_pieces_become_one_that_goes_on_waiting() -> None:
    pieces = [piece(batch, 1) for batch in range(64)]
    assert due(state_of(*pieces), Limits(max_bytes=1_000), FileFormat.PARQUET, 0, through=63) == (
        Merge(pieces=tuple(pieces), is_part=False),
    )


@given(
    sizes=st.lists(st.tuples(st.integers(1, 60), st.sampled_from("ab"), st.sampled_from("st")), min_size=1),
    through=st.integers(0, 30),
    everything=st.booleans(),
)
def test_work_names_each_committed_piece_at_most_once(
    sizes: list[tuple[int, str, str]], through: int, everything: bool
) -> None:
    pieces = [piece(n, size, bucket=bucket, schema=schema) for n, (size, bucket, schema) in enumerate(sizes)]
    work = due(state_of(*pieces), Limits(max_bytes=100), FileFormat.PARQUET, 0, through=through, everything=everything)
    used = [one for step in work for one in (step.pieces if isinstance(step, Merge) else (step.piece,))]
    assert len({one.path for one in used}) == len(used)
    assert all(one.last <= through for one in used)
    if everything:
        assert len(used) == sum(one.last <= through for one in pieces)
    for step in work:
        if isinstance(step, Merge):
            assert len({(one.bucket, one.schema) for one in step.pieces}) == 1
            assert len(step.pieces) == 1 or sum(one.size for one in step.pieces) <= 100 or not step.is_part


@pytest.mark.req("END-5", "END-7")
@pytest.mark.parametrize("known", ["the query has started", "the savepoint says so", "the checkpoint is there"])
def test_what_a_savepoint_knows_is_shown_though_no_batch_came_since(known: str) -> None:
    world = World(SMALL)
    world.run_batch(["a", "b"])
    world.run_batch(["a"])
    restored = world.writer.committed()
    if known != "the checkpoint is there":
        world.move_checkpoint()
    world.restart(restored if known == "the savepoint says so" else None)
    if known == "the query has started":
        world.start_query()
    world.finish()
    world.check_finished()


@pytest.mark.req("END-7")
def test_what_is_old_is_shown_once_the_query_has_started_again() -> None:
    world = World(SMALL)
    world.run_batch(["a"])
    world.now_ms += 10_000
    writer = world.restart()
    writer.newest()
    writer.show_what_is_due()
    assert not world.files.visible(), "an older savepoint may be put into the checkpoint's place just now"
    assert writer.next_age_ms() is None
    world.start_query()
    assert writer.next_age_ms() == SMALL.max_age_ms
    writer.show_what_is_due()
    assert sum(world.files.visible().values()) == 1


@pytest.mark.req("END-7")
def test_rows_that_an_older_checkpoint_does_not_know_stay_invisible() -> None:
    world = World(Limits(max_bytes=10_000))
    for _ in range(5):
        world.run_batch(["a"])
    first = Counter(row for rows in world.committed[:2] for row in rows)
    world.go_back(2)
    world.files.seen = lambda: None
    world.restart()
    world.start_query()
    world.finish()
    assert world.files.visible() == first
    world.files.seen = world.check
    world.run_batch(["a"])
    world.finish()
    assert world.files.visible() == Counter(row for rows in world.committed for row in rows)


@pytest.mark.req("END-1")
def test_the_end_may_come_more_than_once_and_the_query_may_go_on() -> None:
    world = World(SMALL)
    world.run_batch(["a", "b"])
    world.writer.close_parts()
    world.writer.close_parts()
    assert not world.files.visible()
    world.run_batch(["a"])  # the stop has failed: what was closed is shown with the next batch
    world.finish()
    shown = dict(world.shown)
    world.finish()
    assert world.shown == shown
    world.check_finished()


def test_a_superseded_writer_is_told_so() -> None:
    world = World(SMALL)
    world.run_batch(["a"])
    old = world.writer
    world.restart().newest()
    with pytest.raises(SinkFenced, match="another writer has taken over"):
        old.write_batch(Arrival(query="q", checkpoint="c", batch=1, plan="p"), [("a", 1)])
    with pytest.raises(SinkFenced):
        old.publish()
    late = PartWriter(
        world.files,
        world.frames,
        SinkPlaces(output=OUTPUT, work=WORK),
        Writer(job_id="job", attempt=1, writer="late"),
        FileFormat.PARQUET,
        SMALL,
        lambda: 0,
    )
    with pytest.raises(SinkFenced, match="attempt 2 of job job already writes to /out; this is attempt 1"):
        late.newest()
    for _ in range(100):
        world.run_batch(["a"])
    assert len(world.files.names(f"{WORK}/log")) <= 60


def test_another_query_continues_the_output_where_that_is_wanted() -> None:
    world = World(SMALL)
    world.run_batch(["a"] * 3)
    world.run_batch(["a"])
    places = SinkPlaces(output=OUTPUT, work=WORK)
    owner = Writer(job_id="another", attempt=1, writer="new")
    writer = PartWriter(world.files, world.frames, places, owner, FileFormat.PARQUET, SMALL, lambda: 0, adopted="q")
    for batch in range(2):
        rows = [("a", 1_000 + batch)]
        world.committed.append(rows)
        writer.write_batch(Arrival(query="r", checkpoint="d", batch=batch, plan=f"p{batch}"), rows)
        world.frames.commits["d"].add(batch)
    writer.close_parts()
    writer.publish()
    world.check_finished()


def test_another_query_and_a_gap_are_explained() -> None:
    world = World(SMALL)
    world.run_batch(["a"])
    with pytest.raises(OutputOfAnotherQuery, match="the query q up to 0; another query, r, now writes its batch 0"):
        world.writer.write_batch(Arrival(query="r", checkpoint="c", batch=0, plan="p"), [])
    with pytest.raises(BatchesMissing, match="the next batch for /out is 7, but its newest batch is 0"):
        world.writer.write_batch(Arrival(query="q", checkpoint="c", batch=7, plan="p"), [])


def test_an_older_savepoint_is_explained() -> None:
    world = World(SMALL)
    for _ in range(4):
        world.run_batch(["a"] * 12)
    world.go_back(1)
    with pytest.raises(OutputIsAhead, match=r"batch 1 has other rows .* older checkpoint or savepoint") as caught:
        world.run_batch(["a"])
    assert "newest savepoint" in str(caught.value)
