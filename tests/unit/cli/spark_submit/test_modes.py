import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.cli.spark_submit.modes import Mode, mode_of, refuse_shells
from emberkeep.cli.spark_submit.submission_id import job_of, submission_id

CLUSTER = {"spark.submit.deployMode": "cluster"}


@pytest.mark.parametrize(
    ("settings", "environ", "is_client", "waits"),
    [
        ({}, {}, True, True),
        ({"spark.master": "spark://old:7077"}, {}, True, True),
        (CLUSTER, {}, False, False),
        ({}, {"DEPLOY_MODE": "cluster"}, False, False),
        ({"spark.submit.deployMode": "client"}, {"DEPLOY_MODE": "cluster"}, True, True),
        (CLUSTER | {"spark.master": "spark://old:7077"}, {}, False, False),
        (CLUSTER | {"spark.standalone.submit.waitAppCompletion": "true"}, {}, False, True),
        (CLUSTER | {"spark.master": "yarn"}, {}, False, True),
        (CLUSTER, {"MASTER": "yarn"}, False, True),
        (CLUSTER | {"spark.master": "yarn", "spark.yarn.submit.waitAppCompletion": "false"}, {}, False, False),
        (CLUSTER | {"spark.master": "k8s://https://c:443"}, {}, False, True),
    ],
)
def test_cluster_mode_waits_where_spark_submit_does(
    settings: dict[str, str], environ: dict[str, str], is_client: bool, waits: bool
) -> None:
    mode = mode_of(settings, environ)
    reports = settings.get("spark.master", "").startswith("k8s")
    assert mode == Mode(url=None, is_client=is_client, waits=waits, reports_exit_code=reports)


def test_a_master_may_be_the_address_of_a_job_manager() -> None:
    assert mode_of({"spark.master": "https://jm:8081"}, {}).url == "https://jm:8081"


def test_an_unknown_deploy_mode_is_refused() -> None:
    with pytest.raises(InvalidInput, match="expected client or cluster"):
        mode_of({"spark.submit.deployMode": "claster"}, {})


def test_shells_are_refused() -> None:
    refuse_shells("app.py")
    with pytest.raises(InvalidInput, match="pyspark-shell"):
        refuse_shells("pyspark-shell")


@pytest.mark.parametrize("job_id", ["0" * 32, "f" * 32, "00000000000000000000000000000abc"])
def test_a_submission_id_names_its_job(job_id: str) -> None:
    text = submission_id(JobId(job_id), 1_795_000_000_000)
    assert text.startswith("driver-20261118110640-")
    assert set(text.removeprefix("driver-")) <= set("0123456789-")  # tools look for driver-[0-9-]+
    assert job_of(text) == job_id


@pytest.mark.parametrize("text", ["a1b2", "driver-1-2", f"driver-20261118072640-{16**32}", "driver-20261118072640-x"])
def test_other_texts_are_no_submission_ids(text: str) -> None:
    assert job_of(text) is None
