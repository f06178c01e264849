"""A stream over numbered rows: its input, its script with a library and a file, and the check of its output."""

from __future__ import annotations

import json
from pathlib import Path

from tests.integration.hosts.site import own_files

ROWS = 20  # in each file
FACTOR = 3
LIBRARY = "def twice(number):\n    return 2 * number\n"
SETTINGS = json.dumps({"factor": FACTOR})

# Arguments: a directory. Ends once a file "finish" is there and all input is read. `doubling` comes with --py-files and
# is needed on executors, `settings.json` with --files. What a row became is written once, by its batch.
SCRIPT = """
import json, os, sys
from pathlib import Path

import doubling
from pyspark import SparkFiles
from pyspark.sql import SparkSession, functions as F

place = Path(sys.argv[1])
spark = SparkSession.builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
factor = json.loads(Path(SparkFiles.get("settings.json")).read_text())["factor"]

def store(frame, number):
    aside = place / f"unfinished-{number}-{os.urandom(8).hex()}"
    aside.write_text(json.dumps(sorted(row.value for row in frame.collect())))
    aside.rename(place / "out" / f"batch-{number}")

rows = spark.readStream.schema("number long").option("maxFilesPerTrigger", 1).json(str(place / "in"))
twice = F.udf(doubling.twice, "long")
values = rows.dropDuplicates(["number"]).select((twice("number") * factor).alias("value"))
print("rows are being read", flush=True)
query = values.writeStream.trigger(processingTime="300 milliseconds").foreachBatch(store).start()
while not (place / "finish").exists() and not query.awaitTermination(0.3):
    pass
query.processAllAvailable()
query.stop()
print("all rows are read", flush=True)
"""


class NumberedRows:
    """Input and output below ``place``, which is below the shared directory."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._fed = 0
        for name in ("in", "out"):
            (place / name).mkdir(parents=True)
        own_files(place)

    def feed(self, files: int = 1) -> None:
        for _ in range(files):
            numbers = range(self._fed * ROWS, (self._fed + 1) * ROWS)
            aside = self.place / f"input-{self._fed}"
            aside.write_text("\n".join(json.dumps({"number": number}) for number in numbers))
            aside.rename(self.place / "in" / f"{self._fed:05}.json")
            self._fed += 1

    def finish(self) -> None:
        (self.place / "finish").touch()

    def written(self) -> list[int]:
        batches = [json.loads(path.read_text()) for path in (self.place / "out").glob("batch-*")]
        return sorted(value for batch in batches for value in batch)

    def answer(self) -> list[int]:
        return [2 * FACTOR * number for number in range(self._fed * ROWS)]

    def is_read(self) -> bool:
        """True if all that was fed so far has come out. Fails if something else has."""
        written = self.written()
        assert len(set(written)) == len(written), "a row has come out twice"
        return written == self.answer()
