"""`emberkeep pipelines` against a JobManager's API: which job it submits."""

from pathlib import Path

import pytest

from emberkeep.cli.application import main
from emberkeep.jobs.model import ArtefactRole, EntryPointKind
from tests.unit.client.fake_job_manager import FakeJobManager

Output = pytest.CaptureFixture[str]
SPEC = """
name: shop
storage: file:///storage/shop
configuration:
  spark.executor.memory: 600m
libraries: [{glob: {include: transformations/**}}]
"""
PLUGIN = "org.apache.spark.sql.connect.SparkConnectPlugin"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "shop"
    directory.mkdir()
    (directory / "spark-pipeline.yml").write_text(SPEC)
    monkeypatch.chdir(directory)


def test_a_run_is_a_job_with_the_project_and_the_options_of_spark_pipelines(fake: FakeJobManager) -> None:
    words = ["--full-refresh", "a, b", "--full-refresh", "c", "--refresh", "d", "--conf", "spark.executor.memory=1g"]
    assert main(["pipelines", "run", "--detach", *words, "--conf", "spark.plugins=mine.Plugin"]) == 0
    (submission,) = fake.submissions
    assert (submission.name, submission.entry_point.kind) == ("shop", EntryPointKind.MODULE)
    assert submission.entry_point.name == "emberkeep.spark.doors.pipeline_run"
    assert submission.arguments == [
        "run",
        "--project=pipeline",
        "--spec=spark-pipeline.yml",
        *("--full-refresh=a", "--full-refresh=b", "--full-refresh=c", "--refresh=d"),
    ]
    assert [(file.role, file.fragment) for file in submission.artefacts] == [(ArtefactRole.ARCHIVE, "pipeline")]
    assert submission.spark_conf["spark.plugins"] == f"mine.Plugin,{PLUGIN}"
    assert submission.spark_conf["spark.executor.memory"] == "600m"  # as in Spark, the specification wins


def test_the_name_can_be_chosen(fake: FakeJobManager) -> None:
    assert main(["pipelines", "run", "--detach", "--name", "nightly"]) == 0
    assert [submission.name for submission in fake.submissions] == ["nightly"]


def test_refreshing_all_excludes_lists_of_tables(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["pipelines", "run", "--full-refresh-all", "--refresh", "a"]) == 2
    assert "--full-refresh-all excludes --full-refresh and --refresh" in capfd.readouterr().err
    assert not fake.submissions
