"""User functions and the rolling file sink through suspend, drain and the end of the sources, with Spark.

The steps are made in the coordinator's order (lifecycle.machine), from a thread beside the script.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.integration.spark.conftest import DriverRunner
from tests.integration.spark.stop_scripts import COMMON

pytestmark = [pytest.mark.integration, pytest.mark.long]

_SCRIPT = (
    COMMON
    + """
from pyspark.sql.streaming import StreamingQueryListener
from emberkeep.api import RichFunction, RollingFileSink, on_executor, register
from emberkeep.lifecycle.errors import UserFunctionFailed

mode = sys.argv[2]
trace = open(root / f"trace-{mode}", "a", buffering=1)

class Traced(RichFunction):
    failing = ""
    def __init__(self, name):
        self.name, self.batches = name, 0
    def __call__(self, frame, batch_id):
        self.batches += 1
    def called(self, method):
        trace.write(f"{self.name} {method}\\n")
        if method == self.failing:
            self.failing = ""
            raise OSError("no space left")
    def open(self): self.called("open")
    def close(self): self.called("close")
    def prepare_to_shutdown(self): self.called("prepare_to_shutdown")
    def shutdown(self): self.called("shutdown")
    def notify_checkpoint_complete(self, checkpoint_id): self.called("notify_checkpoint_complete")
    def snapshot_state(self):
        self.called("snapshot_state")
        return {"batches": self.batches}
    def initialize_state(self, state):
        self.called(f"initialize_state {state['batches']}")
        self.batches = state["batches"]

class Listener(StreamingQueryListener):
    def onQueryStarted(self, event): pass
    def onQueryProgress(self, event): pass
    def onQueryTerminated(self, event): pass
    def close(self): trace.write("listener close\\n")

class Service:
    def close(self): trace.write("service close\\n")

class Counter:
    def __init__(self):
        self.seen = 0
    def say(self, method):
        with open(root / f"executors-{mode}", "a") as said:
            said.write(f"{os.getppid()}/{os.getpid()} {method}\\n")
    def initialize_state(self, states): self.seen += sum(states)
    def snapshot_state(self):
        self.say("snapshot_state")
        return self.seen
    def prepare_to_shutdown(self): self.say("prepare_to_shutdown")
    def notify_checkpoint_complete(self, checkpoint_id): self.say("notify_checkpoint_complete")
    def shutdown(self): self.say("shutdown")
    def close(self): self.say("close")

class Writer(RichFunction):
    # For `foreach`: counts the rows that came, over micro-batches.
    def __init__(self): self.seen = 0
    def say(self, what):
        with open(root / f"writers-{mode}", "a") as said:
            said.write(f"{os.getppid()}/{os.getpid()} {what}\\n")
    def __call__(self, row): self.seen += 1
    def initialize_state(self, states): self.seen = sum(states)
    def snapshot_state(self):
        self.say(f"snapshot_state {self.seen}")
        return self.seen
    def open(self): self.say("open")
    def prepare_to_shutdown(self): self.say("prepare_to_shutdown")
    def notify_checkpoint_complete(self, checkpoint_id): self.say("notify_checkpoint_complete")
    def shutdown(self): self.say("shutdown")
    def close(self): self.say("close")

def counted(frames):
    for frame in frames:
        counter().seen += len(frame)
        yield frame

functions, story = runtime.functions, {}
counter = on_executor(Counter, "counter")

# Both executors have an instance, and no worker is idle for so long that Spark lets it go. Each has one core, so tasks
# that take a while at the same time are on both.
def daemon(frames):
    for frame in frames:
        counter()
        time.sleep(0.5)
        yield pd.DataFrame({"daemon": [os.getppid()]})

def daemons():
    return {row.daemon for row in spark.range(2, numPartitions=2).mapInPandas(daemon, "daemon long").collect()}

def keep_workers():
    while True:
        daemons()
        time.sleep(5)
visible, aged = root / "out", root / "aged"

def shown():
    return len(list(visible.glob("*.parquet")))

def until(condition):
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)

def fill(name, first):
    put(root / "in", name, [("k", second) for second in range(first, first + 10)])
    for query in queries:
        query.processAllAvailable()

def savepoint(name):
    states = functions.snapshot_state(1)
    kinds = {"counted": "counter@", "written": "foreach __main__.Writer@"}
    story["states"] = sorted(name for name in states if not name.startswith(tuple(kinds.values())))
    for what, kind in kinds.items():
        story[what] = sum(json.loads(state[1:]) for name, state in states.items() if name.startswith(kind))
    steps.write_savepoint(heading(), str(root / name), states, nothing)
    functions.notify_checkpoint_complete(1)

def suspend():
    fill("0", 0)
    fill("1", 10)
    steps.finish_batches(nothing)
    savepoint("suspended")
    story["shown"] = shown()
    steps.end()

def drain():
    # No batch comes, and the checkpoint that the rows were written from is gone.
    until(lambda: list(aged.glob("*.parquet")))
    traced.failing = "prepare_to_shutdown"
    steps.finish_batches(nothing)
    steps.drain(nothing)
    try:
        functions.prepare_to_shutdown()
    except UserFunctionFailed as error:
        story["failed"] = str(error)
    steps.restarts.start_queries()
    fill("2", 20)
    story["restored"] = spark.read.parquet(str(visible)).count()
    fill("3", 30)
    steps.finish_batches(nothing)
    steps.drain(nothing)
    functions.prepare_to_shutdown()
    story["before"] = shown()
    savepoint("drained")
    story["after"] = shown()
    functions.shutdown()
    steps.end()

def lead():
    try:
        {"suspend": suspend, "drain": drain}[mode]()
    except BaseException as error:
        story["wrong"] = repr(error)
        os.kill(os.getpid(), signal.SIGTERM)

import signal
import pandas as pd
rows = stream(root / "in")
register(Service())
spark.streams.addListener(Listener())
sink = RollingFileSink(str(visible), max_age=None)
traced = Traced("traced")
until(lambda: len(daemons()) == 2)
threading.Thread(target=keep_workers, daemon=True).start()
queries = [
    rows.select("n", "t").mapInPandas(counted, "n long, t timestamp")
    .writeStream.queryName("out").foreachBatch(sink).start(),
    rows.writeStream.queryName("traced").foreachBatch(traced).start(),
    rows.writeStream.queryName("written").foreach(Writer()).start(),
    rows.writeStream.queryName("aged")
    .foreachBatch(RollingFileSink(str(aged), max_age=1 if mode == "drain" else None)).start(),
]
if mode in ("suspend", "drain"):
    threading.Thread(target=lead, daemon=True).start()
    spark.streams.awaitAnyTermination()
    for query in queries:
        query.awaitTermination()
    print(json.dumps(story), flush=True)
else:
    fill("4", 40)
    for query in queries:
        query.stop()
spark.stop()
"""
)


def trace(root: Path, mode: str) -> list[str]:
    return [line.removeprefix("traced ") for line in (root / f"trace-{mode}").read_text().splitlines()]


@pytest.mark.req("END-1", "END-2", "END-3", "END-5", "END-6", "END-7", "END-8", "END-10")
def test_calls_and_output_of_every_good_end(drivers: DriverRunner, tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()

    def run(mode: str, checkpoints: str, savepoint: str = "") -> dict[str, object]:
        done = drivers.run(
            _SCRIPT,
            str(root),
            mode,
            seconds=240,
            checkpoint_root=(tmp_path / checkpoints).as_uri(),
            job_id="a" * 32,
            hosts=("127.0.0.2", "127.0.0.3"),
            savepoint=f"{root.as_uri()}/{savepoint}" if savepoint else "",
        )
        assert done.exit_code == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        story: dict[str, object] = json.loads(lines[-1]) if lines else {}
        assert "wrong" not in story, story
        return story

    def seconds_of_rows(output: str = "out") -> list[int]:
        return sorted(int(stamp.timestamp()) - 1_600_000_000 for stamp in pd.read_parquet(root / output)["t"])

    def in_workers(name: str) -> dict[str, list[str]]:
        """Calls by process, which is told by its executor's daemon and its own pid."""
        calls: dict[str, list[str]] = {}
        for line in (root / name).read_text().splitlines():
            process, method = line.split(" ", 1)
            calls.setdefault(process, []).append(method.split()[0])
        return calls

    def check_workers(mode: str, counters: list[str], writers: list[str]) -> None:
        """Each instance has seen exactly this; the counters live on both executors."""
        found = in_workers(f"executors-{mode}")
        assert list(found.values()) == [counters, counters]
        assert len({process.split("/")[0] for process in found}) == 2
        found = in_workers(f"writers-{mode}")
        assert set(map(tuple, found.values())) == {("open", *writers)}, "one instance over all micro-batches"

    suspended = ["snapshot_state", "notify_checkpoint_complete", "close"]
    drained = ["prepare_to_shutdown", "snapshot_state", "notify_checkpoint_complete", "shutdown", "close"]
    finite = ["prepare_to_shutdown", "shutdown", "close"]
    others = ["listener close", "service close"]  # closed in the reverse order of their coming
    story = run("suspend", "one")
    assert trace(root, "suspend") == ["open", *suspended, *others]
    check_workers("suspend", suspended, suspended)
    assert story["shown"] == 0, "nothing is flushed"
    states = story["states"]
    assert isinstance(states, list)
    kinds = sorted(name.split(":")[0].rpartition(".")[2] for name in states)
    assert kinds == ["RollingFileSink", "RollingFileSink", "Traced"]

    assert (story["counted"], story["written"]) == (20, 20)

    shutil.rmtree(tmp_path / "one")
    story = run("drain", "two", "suspended")
    assert (story["counted"], story["written"]) == (40, 40), "the state of executors' instances came back"
    # The first stop fails after the functions on executors; rows come after it, and writers with them.
    check_workers("drain", ["prepare_to_shutdown", *drained], drained)
    assert trace(root, "drain") == [
        "initialize_state 2",
        "open",
        "prepare_to_shutdown",  # fails: the job goes on
        *drained,
        *others,
    ]
    assert "prepare_to_shutdown of __main__.Traced in the driver: OSError: no space left" in str(story["failed"])
    # What the failed stop had closed was shown with the batch that came then; the rest is, after the savepoint.
    assert story["restored"] == 20, "all that the savepoint knew"
    assert (story["before"], story["after"]) == (1, 2)
    assert seconds_of_rows() == list(range(40))

    run("finite", "three", "drained")
    calls = trace(root, "finite")
    assert calls[0].startswith("initialize_state")
    assert calls[1:] == ["open", *finite, *others]
    check_workers("finite", finite, finite)
    for output in ("out", "aged"):
        assert seconds_of_rows(output) == list(range(50)), "what was read after the drain is there, too"
