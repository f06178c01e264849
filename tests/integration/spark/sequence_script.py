"""What tests/integration/spark/test_stop_sequences.py runs inside a driver process: hypothesis chooses what happens to
jobs of two queries, one thing after the other, and what comes out is compared with batch jobs over the same rows.

Arguments: a directory, how many examples of each pair of queries, and the seed of all but the first of each.

A job that starts from a savepoint is a new life here: new checkpoint locations, a new job id, the same outputs. The JVM
stays, as its start is what takes the time.
"""

from __future__ import annotations

from tests.integration.spark.stop_scripts import COMMON, KINDS

SEQUENCES = (
    COMMON
    + KINDS
    + '''
import shutil, traceback
from hypothesis import HealthCheck, Phase, given, seed as fixed_seed, settings, strategies as st
from emberkeep.lifecycle.errors import ProcedureRefused
from emberkeep.spark.queries.checkpoint_logs import offset_texts
from emberkeep.spark.errors import DrainGivenUp, RestoreRefused
from emberkeep.spark.stopping.restore import Restore
from emberkeep.spark.stopping.limit import NO_LIMIT, Limit

# Each with its simplest example, from which hypothesis departs, and how many more there are of it than asked for.
PAIRS = {
    ("windows", "joined"): (
        ["suspend_and_restore", "older_savepoint_is_refused", "crash_in_a_drain", "stop_is_impatient"], 1),
    ("sessions", "grouped"): (["drain_and_restore", "savepoint", "suspend_and_restore", "crash_in_a_batch"], 0),
    ("distinct", "transformed"): (["drain_and_go_on", "suspend_and_restore", "crash_in_a_drain", "stop_fails"], 0),
    ("windows", "updates"): (["drain_fails", "suspend_and_restore", "drain_and_restore", "crash_in_a_batch"], 0),
}
KINDS["updates"] = windows  # in update mode: each batch has the new counts of the windows that it has changed
examples, seed = int(sys.argv[2]), int(sys.argv[3])
hook = runtime._queries
starts = hook._starts
SCHEMA = "a long, k string, c long"

class Crashed(Exception):
    """Stands for the end of a process."""

class Job:
    """The queries of one example: what was fed, what they have read between two drains, where their savepoints are."""

    def __init__(self, home, pair):
        self.home, self.pair, self.lives, self.files, self.second = home, pair, 0, 0, 0
        self.queries, self.savepoints, self.done = {}, [], []
        self.segments = {kind: [] for kind in pair}  # lists of files: what was read between two drains
        self.updates = []  # lists of batches in update mode: what came out between two drains
        self.failing = False
        self.begin("")

    def begin(self, savepoint):
        """A job starts, from nothing or from a savepoint. Nothing is left of the job before it."""
        for earlier in self.home.glob("life-*"):
            shutil.rmtree(earlier)
        self.lives += 1
        hook._queries.clear()
        hook._root, hook._next_ordinal = f"{self.home.as_uri()}/life-{self.lives}", 0
        before = starts._restore
        starts._restore = Restore(savepoint, JobId(f"{self.lives:032x}"), before._storages, before._states, nothing,
                                  hook._notices)
        steps._drain_begun = False
        steps.gate.open()
        self.start()

    def start(self):
        """An attempt starts: its script starts its queries."""
        for kind in self.pair:
            rows = stream(self.home / "in", "1 hour" if kind == "distinct" else "5 seconds")
            writer = KINDS[kind](rows).writeStream.queryName(kind)
            if kind == "updates":
                self.queries[kind] = writer.outputMode("update").foreachBatch(self.update).start()
            else:
                self.queries[kind] = writer.format("json").outputMode("append").start(str(self.home / f"out-{kind}"))

    def update(self, frame, number):
        """Replace the output of a batch, as a sink in update mode does."""
        rows = [[str(value) for value in row] for row in frame.collect()]
        if self.failing:
            raise OSError("nobody answers")
        place = self.home / "updates"
        place.mkdir(exist_ok=True)
        (place / ".next").write_text(json.dumps(rows))
        os.rename(place / ".next", place / f"{self.lives:03}-{number:06}.json")

    def crash(self):
        """The attempt ends wherever it is, and the next one starts."""
        for query in self.queries.values():
            query._jsq.stop()
        hook._queries.clear()
        steps.plans.open()
        steps.gate.open()
        self.start()

    def end(self):
        for query in self.queries.values():
            query._jsq.stop()

    def feed(self, rng, rows):
        lines = []
        for _ in range(rows):
            self.second += rng.randint(0, 4)
            lines.append((rng.choice("abc"), self.second))
        put(self.home / "in", f"{self.files:03}", lines)
        self.files += 1
        time.sleep(0.01)  # files are read in the order of their times, in milliseconds

    def read_all(self):
        for query in self.queries.values():
            query.processAllAvailable()

    def save(self):
        path = str(self.home / f"savepoint-{len(self.savepoints)}")
        steps.write_savepoint(heading(self.lives), path, {}, nothing)
        self.savepoints.append(path)
        return path

    def note_drain(self, kinds=None):
        """What each query has read since the last drain."""
        for kind in kinds or self.pair:
            read, before = self.files_read(kind), sum(self.segments[kind], [])
            assert read[: len(before)] == before, f"{kind} has forgotten what it had read"
            self.segments[kind].append(read[len(before):])
            if kind == "updates":
                known = sum(self.updates, [])
                self.updates.append([each for each in self.all_updates() if each not in known])

    def all_updates(self):
        return sorted(str(path) for path in (self.home / "updates").glob("*.json"))

    def files_read(self, kind):
        """In order."""
        place = self.home / f"life-{self.lives}" / f"query-{kind}"
        newest = max(int(file.name) for file in (place / "commits").iterdir() if file.name.isdigit())
        (offset,) = set(offset_texts((place / "offsets" / str(newest)).read_text()))  # the join has its source twice
        found = {}
        for log in (place / "sources" / "0").iterdir():
            if log.name.removesuffix(".compact").isdigit():
                for line in log.read_text().splitlines()[1:]:
                    entry = json.loads(line)
                    found[entry["batchId"]] = entry["path"].rpartition("/")[2]
        return [found[batch] for batch in range(json.loads(offset)["logOffset"] + 1)]

    def compare(self):
        for kind in self.pair:
            got = sorted(self.newest_counts() if kind == "updates" else self.appended(kind))
            expected = []
            for names in self.segments[kind]:
                rows = batch([self.home / "in" / name for name in names])
                expected += [str(tuple(map(str, row))) for row in KINDS[kind](rows).collect()]
            assert got == sorted(expected), (kind, self.done, self.segments[kind], got, sorted(expected))
            fed = sorted(file.name for file in (self.home / "in").glob("*.json"))
            assert sorted(sum(self.segments[kind], [])) == fed, (kind, self.done, "not every file was read once")

    def appended(self, kind):
        """All rows of the file sink."""
        out = spark.read.schema(SCHEMA).json(str(self.home / f"out-{kind}"))
        return [str(tuple(map(str, row))) for row in out.collect()]

    def newest_counts(self):
        """The newest row of each window and key between two drains."""
        found = []
        for batches in self.updates:
            newest = {}
            for path in batches:
                newest |= {(a, k): c for a, k, c in json.loads(Path(path).read_text())}
            found += [str((a, k, c)) for (a, k), c in newest.items()]
        return found

    # --- what may happen to it ---

    def act(self, action, rng):
        self.done.append(action)
        getattr(self, action)(rng)
        for kind, query in self.queries.items():
            assert query.isActive and query.exception() is None, (kind, self.done, query.exception())

    def more_rows(self, rng):
        self.feed(rng, rng.randint(1, 8))

    def rows_are_read(self, rng):
        self.feed(rng, rng.randint(1, 8))
        self.read_all()

    def stop_fails(self, rng):
        steps.finish_batches(nothing)
        steps.restarts.start_queries()

    def stop_is_impatient(self, rng):
        """It fails where a batch runs just now, and those queries run on as if nothing had been."""
        self.feed(rng, 2)
        time.sleep(rng.uniform(0, 0.5))
        runs = {kind: str(query.runId) for kind, query in self.queries.items()}
        try:
            steps.finish_batches(nothing, Limit(time.monotonic() + rng.choice([0.0, 0.3])))
        except ProcedureRefused as error:
            met["a stop was too late"] = met.get("a stop was too late", 0) + 1
            late = [kind for kind, query in self.queries.items() if f"query {kind!r}" in str(error)]
            assert late
            steps.restarts.start_queries()
            if "was planned and has not run: the job continues" in str(error):
                return  # Spark itself has interrupted this batch, and with it the query
            assert "did not end in time: the job continues" in str(error), error
            for kind in late:
                assert str(self.queries[kind].runId) == runs[kind], (kind, "it was not to be started again")
        else:
            steps.restarts.start_queries()

    def savepoint(self, rng):
        try:
            steps.pause(nothing, rng.choice([NO_LIMIT, Limit(time.monotonic() + 0.2)]))
        except ProcedureRefused as error:
            assert "did not end in time: the job continues" in str(error), error
            steps.pauses.resume()
            return
        steps.pauses.resume()
        self.save()

    def suspend_and_restore(self, rng):
        steps.finish_batches(nothing)
        path = self.save()
        self.end()
        self.more_rows(rng)
        self.begin(path)

    def older_savepoint_is_refused(self, rng):
        """Its sink has gone further: nothing starts, and nothing is changed."""
        if not self.savepoints:
            steps.pause(nothing)
            steps.pauses.resume()
            self.save()
        self.rows_are_read(rng)
        steps.finish_batches(nothing)
        path = self.save()
        self.end()
        try:
            self.begin(self.savepoints[0])
        except RestoreRefused as error:
            assert "Spark's file sink would skip" in str(error), error
        else:
            raise AssertionError(f"an older savepoint was taken: {self.done}")
        self.begin(path)

    def drain_and_go_on(self, rng):
        steps.finish_batches(nothing)
        self.more_rows(rng)  # nobody has read it
        steps.drain(nothing)
        self.note_drain()
        steps.restarts.start_queries()

    def drain_and_restore(self, rng):
        steps.finish_batches(nothing)
        steps.drain(nothing)
        path = self.save()
        self.note_drain()
        self.end()
        self.more_rows(rng)
        self.begin(path)

    def drain_fails(self, rng):
        """The second query's batch fails. The first one has emitted its state, and both go on."""
        if "updates" not in self.pair:
            return self.drain_and_go_on(rng)
        steps.finish_batches(nothing)
        self.more_rows(rng)  # nobody has read it
        self.failing = True
        try:
            steps.drain(nothing)
            raise AssertionError("the drain's batch did not fail")
        except DrainGivenUp as error:
            assert "the drain is abandoned because its batch" in str(error), error
            assert "nobody answers" in str(error), error
        finally:
            self.failing = False
        self.note_drain(self.pair[:1])
        steps.restarts.start_queries()

    def crash_in_a_batch(self, rng):
        self.feed(rng, 3)
        time.sleep(rng.uniform(0, 0.5))
        self.crash()

    def crash_in_a_drain(self, rng):
        """The drain is planned and has not run: the next attempt does that first, then reads on."""
        self.rows_are_read(rng)
        steps.finish_batches(nothing)
        self.more_rows(rng)  # nobody has read it
        drain = steps._drain
        original = drain._run_planned
        def crashed(*_):
            raise Crashed
        drain._run_planned = crashed
        try:
            steps.drain(nothing)
            raise AssertionError("nothing was planned")
        except Crashed:
            pass
        finally:
            drain._run_planned = original
        self.note_drain(self.pair[:1])  # only the first query has come to its drain
        self.crash()

ACTIONS = [name for name in vars(Job) if not name.startswith("_") and name not in (
    "begin", "start", "crash", "end", "feed", "read_all", "save", "note_drain", "files_read", "compare", "act",
    "update", "all_updates", "appended", "newest_counts")]
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
met, told = {}, []

def play(pair, actions, seed, rocks):
    if rocks or "transformed" in pair:
        spark.conf.set(PROVIDER, ROCKS)
    else:
        spark.conf.unset(PROVIDER)
    rng = random.Random(seed)
    began = time.monotonic()
    job = Job(root / f"{'-'.join(pair)}-{time.monotonic_ns()}", pair)
    try:
        job.rows_are_read(rng)
        for action in actions:
            job.act(action, rng)
        job.read_all()
        steps.finish_batches(nothing)
        steps.drain(nothing)
        job.note_drain()
        job.end()
        job.compare()
    except BaseException:
        print(pair, job.done, seed, file=sys.stderr)
        traceback.print_exc()  # hypothesis plays it once more
        job.end()
        raise
    told.append([job.done, round(time.monotonic() - began, 1)])

def chosen(begin):
    """As many actions as in ``begin`` and up to two more."""
    of = lambda first: st.sampled_from([first, *(action for action in ACTIONS if action != first)])
    more = st.lists(st.sampled_from(ACTIONS), max_size=2)
    return st.tuples(st.tuples(*map(of, begin)), more).map(lambda found: [*found[0], *found[1]])

def plays(number, pair, begin, count):
    @fixed_seed(number)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))
    @given(actions=chosen(begin), seed=st.integers(0, 2**32), rocks=st.booleans())
    def sequences(actions, seed, rocks):
        play(pair, actions, seed, rocks)

    return sequences

def batch_outlasts_the_stop():
    """It is not interrupted: its query runs on as if nothing had been, and can be stopped later."""
    entered, release, rows = threading.Event(), threading.Event(), []
    def slow(frame, number):
        found = [row.n for row in frame.select("n").collect()]
        entered.set()
        assert release.wait(240)
        rows.extend(found)
    put(root / "slow", "0", [("a", second) for second in range(5)])
    query = stream(root / "slow").writeStream.queryName("slow").foreachBatch(slow).start()
    assert entered.wait(240)
    assert query.isActive
    run, notes = str(query.runId), []
    def noted(note):
        notes.append(note)
        runtime.streaming_progress()  # as the driver looks all the time
    for _ in range(2):
        try:
            steps.finish_batches(noted, Limit(time.monotonic() + 1.5))
        except ProcedureRefused as error:
            assert "batch 0 of query 'slow' (begun " in str(error), error
        else:
            raise AssertionError("the batch still runs")
        steps.restarts.start_queries()
        assert (query.isActive, str(query.runId), query.exception()) == (True, run, None)
        assert [(each.name, each.is_active) for each in runtime.streaming_progress()] == [("slow", True)]
        try:
            steps.pause(notes.append, Limit(time.monotonic() + 0.3))
        except ProcedureRefused as error:
            assert "did not end in time" in str(error), error
        else:
            raise AssertionError("the batch still runs")
        steps.pauses.resume()
    assert any(note.startswith("finishing batch 0 of query 'slow' (begun ") for note in notes), notes
    release.set()
    put(root / "slow", "1", [("a", second) for second in range(5, 10)])
    query.processAllAvailable()
    assert str(query.runId) == run
    steps.finish_batches(nothing, Limit(time.monotonic() + 240))
    query._jsq.stop()
    assert sorted(rows) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4], rows

def until(condition):
    end = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)

def planned_numbers(name, log):
    place = Path(hook._root.removeprefix("file://")) / f"query-{name}"
    return {int(file.name) for file in (place / log).iterdir() if file.name.isdigit()}

def stop_meets_a_plan(name, is_refused):
    """A query is told to end while it plans batch 1, which has five rows; then a stop and a start go on as usual.

    The plan is refused: batch 1 is planned after the stop. If it is not, as where the state was set without the gate,
    Spark interrupts the batch that it has just planned, and the stop runs it once more under its number.
    """
    seen = {}
    def keep(frame, number):
        seen.setdefault(number, []).append(sorted(row.n for row in frame.select("n").collect()))
    put(root / name, "0", [("a", second) for second in range(3)])
    query = stream(root / name).writeStream.queryName(name).foreachBatch(keep).start()
    query.processAllAvailable()
    execution = query._jsq.streamingQuery()
    waits = threading.Event()
    is_open_for = steps.plans._is_open_for
    def looked_at(*given):
        waits.set()
        return is_open_for(*given)
    steps.plans._is_open_for = looked_at
    assert steps.plans.close(NO_LIMIT)
    put(root / name, "1", [("a", second) for second in range(3, 8)])
    assert waits.wait(240)
    if not is_refused:
        def at_once(query_id, end, limit):
            end()
            return True
        steps.plans.end = at_once
    def let_it_plan():
        until(lambda: not query.isActive or not execution.isActive())
        steps.plans.open()
    other = threading.Thread(target=let_it_plan)
    other.start()
    steps.finish_batches(nothing)
    other.join()
    vars(steps.plans).pop("end", None)
    del steps.plans._is_open_for
    if is_refused:
        assert seen.keys() == {0} and planned_numbers(name, "offsets") == {0}, seen
    else:
        assert seen[1][-1] == [0, 1, 2, 3, 4] and seen.keys() == {0, 1}, seen
        assert planned_numbers(name, "commits") == {0, 1}
    put(root / name, "2", [("a", 8)])  # before the start, or the batch after a refused plan may come without it
    steps.restarts.start_queries()
    assert query.isActive and query.exception() is None, query.exception()
    query.processAllAvailable()
    # Spark's file source has noted the file of a refused plan, and reads it together with the next one.
    assert seen[1][-1] == [0, 0, 1, 2, 3, 4] if is_refused else seen[2] == [[0]], seen
    assert planned_numbers(name, "commits") == planned_numbers(name, "offsets") == seen.keys()
    steps.finish_batches(nothing)
    query._jsq.stop()
    steps.gate.open()

try:
    for refused in (True, False):
        stop_meets_a_plan("refused" if refused else "interrupted", refused)
        hook._queries.clear()
    batch_outlasts_the_stop()
    hook._queries.clear()
    for number, (pair, (begin, more)) in enumerate(PAIRS.items()):
        plays(seed + number, pair, begin, examples + more)()
except BaseException as error:
    print(json.dumps({"failed": repr(error)[:4000], "told": told}))
    sys.exit(1)
print(json.dumps({"met": met, "told": told}))
'''
)
