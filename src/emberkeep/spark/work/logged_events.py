"""Read events from a file of Spark's event log, in the driver's JVM, which has the codecs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emberkeep.base.errors import Damaged
from emberkeep.spark.executors.scheduler_control import call

# Of what lasts longer than a file of the log. Without the event that begins it, Spark's pages do not show it at all,
# and without the one that ends it, they show it for ever. The event is what Spark writes first into each line.
_LASTING = "|".join(
    (
        "SparkListenerExecutor(?:Added|Removed)",
        "SparkListenerBlockManager(?:Added|Removed)",
        "SparkListenerResourceProfileAdded",
        r"org\.apache\.spark\.sql\.streaming\.StreamingQueryListener\$Query(?:Started|Terminated)Event",
    )
)
_LINE = rf'^\{{"Event":"(?:{_LASTING})"'
LINES_READ = 1000  # of one file
_CHARSET = "ISO-8859-1"  # has a character for each byte, so that bytes stay what they are


def lasting_events(context: Any, file: Path) -> list[bytes]:
    """Return the newest LINES_READ lines of ``file`` that say when streaming queries and executors came and went.

    Raises SparkUnavailable, Damaged (Spark cannot read the file).
    """
    from py4j.protocol import Py4JJavaError

    def ask() -> str:
        jvm = context._jvm
        path = jvm.org.apache.hadoop.fs.Path(f"file:{file}")  # Hadoop takes the escapes of a URI as they are
        files = path.getFileSystem(context._jsc.hadoopConfiguration())
        is_lasting = jvm.scala.jdk.javaapi.FunctionConverters.asScalaFromPredicate(
            jvm.java.util.regex.Pattern.compile(_LINE).asPredicate()
        )
        try:
            stream = jvm.org.apache.spark.deploy.history.EventLogFileReader.openEventLog(path, files)
            try:
                lines = jvm.scala.io.Source.fromInputStream(stream, _CHARSET).getLines()
                return str(lines.filter(is_lasting).toVector().takeRight(LINES_READ).mkString("\n"))
            finally:
                stream.close()
        except Py4JJavaError as error:
            reason = str(error.java_exception).partition("\n")[0]
            raise Damaged(f"a file of the event log cannot be read: {file.name}: {reason}") from error

    text: str = call("events of the event log", ask)
    return text.encode(_CHARSET).splitlines()
