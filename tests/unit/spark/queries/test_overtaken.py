"""Which errors of a script say that another attempt has written to the checkpoint of its query."""

from __future__ import annotations

import pytest

from emberkeep.spark.queries.checkpoint_guard import was_overtaken

FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
OF_SPARK = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 4."
RENAMED = (
    "org.apache.spark.SparkFileAlreadyExistsException: [FAILED_RENAME_PATH] Failed to rename file:/c/offsets/.4.tmp to "
    "file:/c/offsets/4 as destination already exists. SQLSTATE: 42K04"
)
OF_HADOOP = "org.apache.hadoop.fs.FileAlreadyExistsException: rename destination /c/offsets/4 already exists."
OF_OUTPUT = "org.apache.hadoop.mapred.FileAlreadyExistsException: Output directory file:/data/out already exists"


@pytest.mark.req("HA-7")
@pytest.mark.parametrize("cause", [OF_SPARK, RENAMED, OF_HADOOP])
def test_an_entry_that_another_attempt_has_written_ends_an_attempt_that_was_overtaken(cause: str) -> None:
    assert was_overtaken(f"{FAILED}{cause}")


@pytest.mark.parametrize(
    "error",
    [
        f"Py4JJavaError: An error occurred while calling o48.saveAsTextFile.\n: {OF_OUTPUT}",
        f"{FAILED}Py4JJavaError: An error occurred while calling o48.saveAsTextFile.\n: {OF_OUTPUT}",
        f"Py4JJavaError: An error occurred while calling o31.create.\n: {OF_HADOOP}",
        "AnalysisException: [PATH_ALREADY_EXISTS] Path file:/data/out already exists.",
    ],
)
def test_output_that_an_earlier_attempt_has_left_is_a_failure_of_the_script(error: str) -> None:
    """Restarted, the script would fail with it each time."""
    assert not was_overtaken(error)
