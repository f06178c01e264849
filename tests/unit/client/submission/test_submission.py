import zipfile
from pathlib import Path

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.job_options import is_job_key, job_options, refuse_cluster_options, without_client_keys
from emberkeep.client.submission.preparation import PreparedJob, Program, prepare, upload
from emberkeep.client.submission.spark_options import SparkOptions
from emberkeep.jobs.model import ArtefactRole, EntryPointKind
from emberkeep.protocol.rest_submission import OffloadedSubmission
from tests.support.no_progress import NoProgress
from tests.unit.client.fake_job_manager import FakeJobManager


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a script and things it may bring along."""
    (tmp_path / "app.py").write_text("print('hi')\n")
    (tmp_path / "lib.py").write_text("x = 1\n")
    (tmp_path / "data.csv").write_text("1,2\n")
    (tmp_path / "copy.csv").write_text("1,2\n")
    with zipfile.ZipFile(tmp_path / "env.zip", "w") as zipped:
        zipped.writestr("a", "b")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(script: str = "app.py", *arguments: str, **options: str | None) -> PreparedJob:
    return prepare(Program(script, None, arguments), SparkOptions(**options), {}, {})  # type: ignore[arg-type]


def test_a_script_and_its_files_become_a_submission(folder: Path) -> None:
    job = prepared("app.py", "--x", "", py_files="lib.py", files="data.csv#d.csv", archives="env.zip#env", name="mine")
    submission = job.submission
    assert submission.name == "mine"
    assert submission.entry_point.kind is EntryPointKind.SCRIPT
    assert submission.entry_point.name == "app.py"
    assert submission.entry_point.source_path == str(folder / "app.py")
    assert submission.arguments == ["--x", ""]
    assert submission.working_directory == str(folder)
    assert [(a.role, a.name, a.fragment) for a in submission.artefacts] == [
        (ArtefactRole.SCRIPT, "app.py", ""),
        (ArtefactRole.PY_FILE, "lib.py", ""),
        (ArtefactRole.FILE, "d.csv", ""),
        (ArtefactRole.ARCHIVE, "env.zip", "env"),
    ]
    assert submission.spark_conf == {"spark.app.name": "mine"}
    assert set(job.contents.values()) == {folder / name for name in ("app.py", "lib.py", "data.csv", "env.zip")}


@pytest.mark.usefixtures("folder")
def test_text_that_is_not_utf_8_is_told_with_a_way_out() -> None:
    for words, conf in ((("caf\udce9",), ()), ((), ("spark.x=caf\udce9",))):
        with pytest.raises(InvalidInput, match=r"'caf.udce9' is not UTF-8"):
            prepare(Program("app.py", None, words), SparkOptions(conf=conf), {}, {})


@pytest.mark.usefixtures("folder")
def test_each_submission_has_its_own_key() -> None:
    assert prepared().submission.idempotency_key != prepared().submission.idempotency_key


@pytest.mark.usefixtures("folder")
def test_files_given_as_properties_are_sent_too_and_remote_ones_stay() -> None:
    options = SparkOptions(conf=("spark.files=data.csv,hdfs://nn/x", "spark.jars=https://h/a.jar"))
    submission = prepare(Program("app.py", None, ()), options, {}, {}).submission
    assert [artefact.name for artefact in submission.artefacts] == ["app.py", "data.csv"]
    assert submission.spark_conf == {"spark.files": "hdfs://nn/x", "spark.jars": "https://h/a.jar"}


@pytest.mark.usefixtures("folder")
def test_a_module_has_no_script() -> None:
    job = prepare(Program(None, "lib", ("a",)), SparkOptions(py_files="lib.py"), {}, {})
    assert job.submission.entry_point.kind is EntryPointKind.MODULE
    assert job.submission.name == "lib"
    assert [artefact.role for artefact in job.submission.artefacts] == [ArtefactRole.PY_FILE]
    assert job.notices == ()
    assert "must be installed" in prepare(Program(None, "not_here", ()), SparkOptions(), {}, {}).notices[0]


@pytest.mark.usefixtures("folder")
def test_job_options_go_along() -> None:
    job = prepare(Program("app.py", None, ()), SparkOptions(), {"restart-strategy.type": "none"}, {})
    assert job.submission.options == {"restart-strategy.type": "none"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "x" * 257}, r"name has 257 characters \(256 characters at most\)"),
        ({"name": "a\nb"}, "control characters"),
        ({"driver_memory": "much"}, r"spark\.driver\.memory='much' is not an amount of memory"),
        ({"driver_memory": "9" * 5000}, r"spark\.driver\.memory='9+' is not an amount of memory"),
        ({"num_executors": "0"}, r"spark\.executor\.instances='0'"),
        ({"files": "data.csv#app.py"}, r"different files, and both would be called app\.py"),
        ({"main_class": "a.B"}, "--class is for Java"),
        ({"py_files": "none.py"}, r"--py-files: none\.py does not exist"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_mistakes_are_found_before_anything_is_sent(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        prepared(**options)


@pytest.mark.usefixtures("folder")
def test_no_script_is_a_mistake() -> None:
    with pytest.raises(InvalidInput, match="no script given"):
        prepare(Program(None, None, ()), SparkOptions(), {}, {})


@pytest.mark.usefixtures("folder")
async def test_equal_files_are_sent_once_below_the_jobs_own_id() -> None:
    job = prepared(files="data.csv,copy.csv#other.csv")
    with FakeJobManager().serving() as fake:
        async with RestClient(fake.endpoint) as client:
            sent = await upload(client, job, NoProgress())
            again = await upload(client, job, NoProgress())
            accepted = await client.submit(sent)
        owner = job.submission.jobid
        assert set(fake.blobs) == {(owner, f"p-{item.sha256}") for item in job.submission.artefacts}
        assert sum(request.startswith("PUT") for request in fake.requests) == 2
        assert fake.submissions == [job.submission]
        assert accepted.jobid == owner
        assert sent is again is job.submission


@pytest.mark.usefixtures("folder")
async def test_a_job_without_files_uploads_nothing() -> None:
    job = prepare(Program(None, "not_here", ()), SparkOptions(), {}, {})
    with FakeJobManager().serving() as fake:
        async with RestClient(fake.endpoint) as client:
            await client.submit(await upload(client, job, NoProgress()))
        assert fake.requests == ["POST /v1/jobs"]


@pytest.mark.req("BLOB-19")
@pytest.mark.usefixtures("folder")
async def test_a_large_submission_travels_as_a_blob_of_its_group() -> None:
    job = prepare(Program("app.py", None, ("x" * 3_000_000,)), SparkOptions(), {}, {}, offload_min_size=2_000_000)
    with FakeJobManager().serving() as fake:
        async with RestClient(fake.endpoint) as client:
            sent = await upload(client, job, NoProgress())
            assert isinstance(sent, OffloadedSubmission)
            first, again = await client.submit(sent), await client.submit(sent)
        assert [first.created, again.created] == [True, False]
        assert fake.submissions == [job.submission]
        assert sorted(key[0] for _, key in fake.blobs) == ["p", "t"]
        assert len(fake.groups[0].blobs) == 2


def test_settings_are_told_apart() -> None:
    definitions = ["restart-strategy=none", "slot.request.timeout=5s", "rest.port=1", "emberkeep.state-dir=/x"]
    assert job_options(definitions) == {"restart-strategy.type": "none", "slot.request.timeout": "5s"}
    refuse_cluster_options(definitions)
    assert without_client_keys(definitions) == ("restart-strategy=none", "slot.request.timeout=5s")
    assert is_job_key("state.backend.local-recovery")
    assert is_job_key("watchdog.restart")
    assert is_job_key("execution.openlineage")
    assert is_job_key("execution.standby")
    assert not is_job_key("state.backend.local-recovery.max-size")
    assert not is_job_key("taskmanager.numberOfTaskSlots")
    with pytest.raises(InvalidInput, match=r"-D taskmanager\.numberOfTaskSlots: a setting of the cluster's processes"):
        refuse_cluster_options(["taskmanager.numberOfTaskSlots=3"])
    with pytest.raises(InvalidInput, match="restart-strategy"):
        job_options(["restart-strategy.type=sometimes"])
