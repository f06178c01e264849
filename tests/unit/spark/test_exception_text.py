"""One line that says what has happened."""

from __future__ import annotations

from emberkeep.spark.exception_text import in_one_line

# As PySpark 4.3 has it, shortened.
_OF_A_FUNCTION = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "pyspark/sql/utils.py", line 166, in call
    raise e
  File "sink.py", line 92, in write
    raise OutputIsAhead(
          ^^^^^^^^^^^^^^
sink.OutputIsAhead: batch 2 comes with other rows: an older savepoint
 SQLSTATE: 39000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: rows [id = 1, runId = 2]
"""  # noqa: E501 - Spark's own line
_CHAINED = """Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'k'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 3, in g
ValueError: no k

\tat org.apache.spark.api.python.BasePythonRunner
"""
# A function that lets Spark read rows, whose disk is full.
_OF_A_FUNCTION_THAT_CALLS_SPARK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "counted.py", line 9, in store
    rows = frame.collect()
py4j.protocol.Py4JJavaError: An error occurred while calling o188.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tat org.apache.hadoop.fs.RawLocalFileSystem.write(RawLocalFileSystem.java:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 61 more

 SQLSTATE: 39000 SQLSTATE: XXKST
"""  # noqa: E501 - Spark's own line
_OF_A_JOB = """An error occurred while calling o55.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed
\tat org.apache.spark.Scheduler
Caused by: java.io.EOFException: reached end of stream
"""
_OF_A_WORKER = """Traceback (most recent call last):
  File "a.py", line 1, in f
ValueError: no k

Driver stacktrace:
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "a.py", line 1, in f
ValueError: no k
"""


def test_the_first_line_of_a_message() -> None:
    assert in_one_line("no such airport\nand more") == "no such airport"
    assert in_one_line("") == ""


def test_what_a_function_has_raised() -> None:
    assert in_one_line(_OF_A_FUNCTION) == "sink.OutputIsAhead: batch 2 comes with other rows: an older savepoint"


def test_the_last_one_of_a_chain() -> None:
    assert in_one_line(_CHAINED) == "ValueError: no k"


def test_a_traceback_that_was_cut_off() -> None:
    assert in_one_line("Traceback (most recent call last):\n  File") == "Traceback (most recent call last):"


def test_the_innermost_cause_of_a_stack_trace() -> None:
    line = "py4j.protocol.Py4JJavaError: An error occurred while calling o188.collectToPython."
    cause = "java.io.IOException: No space left on device"
    assert in_one_line(_OF_A_FUNCTION_THAT_CALLS_SPARK) == f"{line}; caused by {cause}"
    assert in_one_line(f"{cause}\nCaused by: {cause}") == cause
    line, cause = "An error occurred while calling o55.collectToPython.", "java.io.EOFException: reached end of stream"
    assert in_one_line(_OF_A_JOB) == f"{line}; caused by {cause}"


def test_a_cause_that_is_an_exception_of_python() -> None:
    assert in_one_line(_OF_A_WORKER) == "ValueError: no k"


def test_an_exception_of_python_that_caused_one_of_java() -> None:
    caused = "Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows\n"
    python = "Caused by: org.apache.spark.api.python.PythonException: " + _CHAINED
    line = "An error occurred while calling o9.parquet."
    assert in_one_line(f"{line}\n\tat a.B\n{caused}\tat a.C\n{python}") == f"{line}; caused by ValueError: no k"
