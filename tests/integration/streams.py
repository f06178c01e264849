"""A streaming job whose output shows every lost, repeated or recomputed row, and the check of it."""

from __future__ import annotations

from pathlib import Path

ROWS = 20  # in each batch

# Arguments: a directory. Ends once a file "finish" is there. Keeps no checkpoint of its own: the default one is used.
SCRIPT = f"""
import os, sys
from pathlib import Path
from pyspark.sql import SparkSession

place = Path(sys.argv[1])

def store(frame, number):
    rows = sorted(row.value for row in frame.select("value").collect())
    aside = place / f"unfinished-{{os.getpid()}}"
    aside.write_text(" ".join(map(str, rows)))
    aside.rename(place / f"batch-{{number}}")
    with (place / "history").open("a") as history:
        history.write(f"{{os.getpid()}} {{number}}\\n")


spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").config(
    "spark.sql.streaming.stateStore.providerClass",
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
).getOrCreate()
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", {ROWS}).option("numPartitions", 2).load()
query = (
    rates.dropDuplicates(["value"]).writeStream.trigger(processingTime="500 milliseconds")
    .foreachBatch(store).start(**dict(word.split("=") for word in sys.argv[2:]))
)
while not (place / "finish").exists() and not query.awaitTermination(0.3):
    pass
print("attempt over after batch", query.lastProgress["batchId"], flush=True)
query.stop()
spark.stop()
"""


def failing_in_its_second_batch(script: str) -> str:
    """A script whose ``store(frame, number)`` works for one batch, and raises in the second one."""
    changed = script.replace(
        "def store(frame, number):\n",
        "seen = []\ndef store(frame, number):\n    seen.append(number)\n"
        "    if len(seen) > 1:\n        raise RuntimeError('no such column')\n",
    )
    assert changed != script
    return changed


class Stream:
    """The output below ``place``."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()

    def batches(self) -> int:
        """How many batches are there."""
        return len(list(self.place.glob("batch-*")))

    def finish(self) -> None:
        (self.place / "finish").touch()

    def history(self) -> list[tuple[int, int]]:
        """(pid of the driver, batch), in the order in which they were written."""
        path = self.place / "history"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), int(batch)) for pid, batch in (line.split() for line in lines)]

    def drivers(self) -> list[int]:
        """Pids of the drivers that wrote batches, in order."""
        return list(dict.fromkeys(pid for pid, _ in self.history()))

    def check(self) -> None:
        """Every row is in exactly one batch; each driver continued where the one before it had stopped."""
        self.check_rows()
        previous: int | None = None
        for driver in self.drivers():
            written = [batch for pid, batch in self.history() if pid == driver]
            assert written == list(range(written[0], written[0] + len(written)))
            if previous is not None:
                assert written[0] in {previous, previous + 1}
            previous = written[-1]

    def check_rows(self) -> None:
        """Every row is in exactly one batch."""
        numbers = sorted(int(path.name.partition("-")[2]) for path in self.place.glob("batch-*"))
        assert numbers == list(range(len(numbers)))
        rows = [int(row) for number in numbers for row in (self.place / f"batch-{number}").read_text().split()]
        assert rows == list(range(len(rows)))
        # The last batch may have been empty while the query was being stopped.
        assert len(numbers) * ROWS - len(rows) in {0, ROWS}
