"""What Spark or the driver cannot read is refused before a job is submitted."""

from __future__ import annotations

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.client.submission.preparation import Program, prepare
from emberkeep.client.submission.spark_options import SparkOptions


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (SparkOptions(packages="?bad"), "packages: '.bad' is not group:artifact:version"),
        (SparkOptions(packages="org.example:one:1,org.example:two"), "packages: 'org.example:two' is not"),
        (SparkOptions(packages="org.example::1"), "is not group:artifact:version"),
        (SparkOptions(conf=("spark.jars.packages=a:b:c:d",)), "is not group:artifact:version"),
        (SparkOptions(exclude_packages="org.example:one:1"), "excludes: .* is not group:artifact "),
        (
            SparkOptions(driver_java_options="-Da='b"),
            "driver.extraJavaOptions=.* no closing quotation .close the quote",
        ),
        (
            SparkOptions(driver_java_options="-Dx=C:\\"),
            r"nothing follows the last backslash .write a backslash as \\\\\)",
        ),
        (SparkOptions(driver_java_options="-Xmx2g"), "must not set -Xmx .*use spark.driver.memory"),
        (SparkOptions(conf=("spark.executor.extraJavaOptions=-Xmx2g",)), "use spark.executor.memory"),
        (SparkOptions(conf=('spark.executor.defaultJavaOptions="',)), "no closing quotation"),
    ],
)
def test_what_cannot_be_read_is_refused(options: SparkOptions, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        prepare(Program(None, "json.tool", ()), options, {}, {})
    assert caught.value.message.startswith(str(caught.value.field))


@pytest.mark.parametrize("packages", ["org.example:one:1", "org.example/one/1, org.example:two:2.0-beta,", "", " "])
def test_what_can_be_read_is_sent(packages: str) -> None:
    options = SparkOptions(packages=packages, exclude_packages="a:b", driver_java_options=r"-Da='b c' -Dd=\\ ")
    job = prepare(Program(None, "json.tool", ()), options, {}, {})
    assert job.submission.spark_conf["spark.jars.packages"] == packages
