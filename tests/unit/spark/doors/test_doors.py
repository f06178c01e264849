"""What the driver's programs for pipelines and Spark Connect need, and how they read their arguments."""

import sys

import pytest

from emberkeep.spark.doors import connect_server
from emberkeep.spark.doors.pipeline_run import PipelineRun, main, parse_run
from emberkeep.spark.errors import SparkInternalsMissing


def test_arguments_of_a_run_are_read() -> None:
    words = ["run", "--project=p", "--spec=s.yml", "--full-refresh=a", "--full-refresh=b", "--refresh=c"]
    assert parse_run(words) == PipelineRun("p", "s.yml", False, ["a", "b"], False, ["c"])
    assert parse_run(["dry-run", "--project=p", "--spec=s.yml"]).dry


def test_a_node_without_the_packages_says_which_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect_server, "_NEEDED", ("msgspec", "no_such_package", "no_such_package.inside"))
    with pytest.raises(
        SparkInternalsMissing, match=r"does not have: no_such_package, no_such_package\.inside"
    ) as error:
        connect_server.require_packages()
    assert error.value.hint == "install them on all nodes: pip install 'emberkeep[connect]'"
    with pytest.raises(SystemExit, match=r"emberkeep\[connect\]"):
        main(["dry-run", "--project=p", "--spec=s.yml"])
    assert "pyspark.pipelines" not in sys.modules
