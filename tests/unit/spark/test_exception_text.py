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


def test_the_first_line_of_a_message() -> None:
    assert in_one_line("no such airport\nand more") == "no such airport"
    assert in_one_line("") == ""


def test_what_a_function_has_raised() -> None:
    assert in_one_line(_OF_A_FUNCTION) == "sink.OutputIsAhead: batch 2 comes with other rows: an older savepoint"


def test_the_last_one_of_a_chain() -> None:
    assert in_one_line(_CHAINED) == "ValueError: no k"


def test_a_traceback_that_was_cut_off() -> None:
    assert in_one_line("Traceback (most recent call last):\n  File") == "Traceback (most recent call last):"
