"""Well-known scripts, and what of their output has to be the same each time."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyspark

PACKAGE = Path(pyspark.__file__).parent
EXAMPLES = PACKAGE / "examples" / "src" / "main" / "python"
DATA = PACKAGE / "data" / "mllib"
H2 = Path("/usr/share/java/h2.jar")  # `tools/ensure-h2.sh`
PLACE = "{place}"  # in an argument: the directory in which the script runs
_NUMBER = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?")
# Ids of models, names of temporary files, times in logs, and where PySpark's modules are: with spark-submit, in an
# archive.
_RANDOM = re.compile(
    r"_[0-9a-f]{12}\b|/\S*/tmp\w{8}\b|\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\b|/\S*/(?=pyspark/\w[\w/]*\.py:)"
)
_WIDTH = re.compile(r"-{2,}| {2,}")  # of a column


@dataclass(frozen=True)
class Script:
    """A script, its arguments and options of the command.

    ``digits``: of numbers with a point, how many are the same each time. ``repeats``: False if nothing else is.
    ``code``: its exit code. ``tables``: what it writes there as JSON, one row a line. ``apart``: an expression for
    lines in which both ways may differ, such as logs of executors, which spark-submit's local mode prints.
    """

    path: Path
    arguments: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    digits: int = 6
    repeats: bool = True
    code: int = 0
    tables: tuple[str, ...] = ()
    apart: str = "$."  # none

    def rows(self, place: Path) -> dict[str, list[str]]:
        """Return the rows of its tables, after it has run in ``place``."""
        warehouse = place / "spark-warehouse"
        return {
            table: sorted(line for part in (warehouse / table).glob("part-*") for line in part.read_text().splitlines())
            for table in self.tables
        }

    def differences(self, alone: str, out: str, err: str) -> list[str]:
        """See the function. A script that fails prints a traceback with the paths of its place besides."""
        found = differences(alone, out, err, self.digits) if self.repeats else []
        found = [line for line in found if not re.search(self.apart, line)]
        return [line for line in found if self.code == 0 or line.startswith("+")]


def differences(alone: str, out: str, err: str, digits: int = 6) -> list[str]:
    """Lines that are printed under spark-submit and not by the job, or the other way round, in whatever order.

    ``alone``: what spark-submit prints, which is both streams of the script. ``out`` and ``err``: streams of the job.
    """
    expected, printed = shown(alone, digits), shown(out, digits)
    less = expected - printed - shown(err, digits)
    return [*(f"- {line}" for line in sorted(less)), *(f"+ {line}" for line in sorted(printed - expected))]


def shown(text: str, digits: int) -> Counter[str]:
    """Lines without what is random or of no meaning."""
    rounded = _NUMBER.sub(lambda found: f"{round(float(found[0]), 2 * digits) + 0:.{digits}g}", text)
    return Counter(_WIDTH.sub(lambda found: found[0][:2], _RANDOM.sub("", rounded)).splitlines())


SCRIPTS = (
    Script(EXAMPLES / "wordcount.py", ("words.txt",)),
    Script(EXAMPLES / "sort.py", ("numbers.txt",)),
    Script(EXAMPLES / "pi.py", ("2",), digits=1),
    Script(EXAMPLES / "pagerank.py", (str(DATA / "pagerank_data.txt"), "5")),
    Script(EXAMPLES / "kmeans.py", (str(DATA / "kmeans_data.txt"), "2", "0.1")),
    Script(EXAMPLES / "als.py", ("20", "30", "3", "2", "2")),
    Script(EXAMPLES / "logistic_regression.py", ("points.txt", "3"), repeats=False),
    # Without the option, its partitions double in each round.
    Script(EXAMPLES / "transitive_closure.py", options=("--conf", "spark.default.parallelism=2")),
    Script(EXAMPLES / "status_api_demo.py", repeats=False),
    Script(EXAMPLES / "sql" / "basic.py"),
    Script(EXAMPLES / "sql" / "datasource.py", code=1),  # it writes twice to a directory that must not exist
    Script(EXAMPLES / "sql" / "hive.py"),
    Script(EXAMPLES / "sql" / "arrow.py", repeats=False),
    Script(EXAMPLES / "sql" / "udtf.py"),
    # The driver starts the database, and the executor joins it: H2 brings both. Derby, which PySpark has, lets one
    # process at a time into a database, and PySpark lacks its server.
    Script(
        EXAMPLES / "sql" / "jdbc.py",
        (f"jdbc:h2:{PLACE}/h2;AUTO_SERVER=TRUE",),
        options=("--driver-class-path", str(H2), "--jars", str(H2)),
    ),
    Script(EXAMPLES / "mllib" / "kmeans.py", (str(DATA / "kmeans_data.txt"), "2"), repeats=False),
    Script(EXAMPLES / "mllib" / "logistic_regression.py", ("points.txt", "3")),
    Script(EXAMPLES / "mllib" / "word2vec.py", ("sentences.txt",), repeats=False),
    Script(Path(__file__).with_name("joins.py")),
)
# They call converters, `org.apache.spark.examples.pythonconverters.…`, of Spark's examples in Scala. No jar of PySpark
# has these classes, so the examples fail under spark-submit, too; the second lacks `org.apache.parquet.avro` as well.
WITHOUT_CLASSES = (EXAMPLES / "avro_inputformat.py", EXAMPLES / "parquet_inputformat.py")
STREAMS = (
    Script(EXAMPLES / "streaming" / "network_wordcount.py"),
    Script(EXAMPLES / "sql" / "streaming" / "structured_network_wordcount.py"),
)


def examples_of_learning() -> list[Path]:
    """PySpark's own batch examples of machine learning, without those that have arguments."""
    found = [path for room in ("ml", "mllib") for path in sorted((EXAMPLES / room).glob("*.py"))]
    named = {script.path for script in SCRIPTS}
    texts = {path: path.read_text(encoding="utf-8") for path in found if path not in named}
    return [path for path, text in texts.items() if "__main__" in text and "StreamingContext" not in text]
