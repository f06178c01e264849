from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.base.redaction import redacted
from emberkeep.client.declarations.declaration import (
    RECORD_KEY,
    DeclaredJob,
    Wanted,
    keyed,
    read_declaration,
    record_in,
    schema,
    wanted_job,
)
from emberkeep.client.declarations.differences import Change, differences

TEXT = """
version: 1
name: counts
script: jobs/app.py
arguments: [--input, data]
conf:
  spark.executor.instances: 2
  spark.sql.adaptive.enabled: true
options:
  restart-strategy.type: fixed-delay
files: [extra.txt]
secrets: [KEY=key.txt]
"""
# A record as release 0.2 writes it: later releases must read it.
RECORD = (
    '{"declaration":{"arguments":["a"],"conf":{"spark.a":1},"name":"counts","script":"app.py","version":1},'
    '"directory":"/d","files":{"script app.py":"ab"}}'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "app.py").write_text("print(1)\n")
    (tmp_path / "extra.txt").write_text("extra")
    (tmp_path / "key.txt").write_text("hush\n")
    (tmp_path / "job.yaml").write_text(TEXT)
    return tmp_path


def wanted(folder: Path, text: str = TEXT, **environ: str) -> Wanted:
    (folder / "job.yaml").write_text(text)
    return wanted_job(folder / "job.yaml", environ, offload_min_size=1 << 20)


def test_a_file_becomes_a_job_with_its_record(folder: Path) -> None:
    (folder / "spark-defaults.conf").write_text("spark.other 1\n")
    found = wanted(folder, SPARK_CONF_DIR=str(folder), SPARK_EXECUTOR_MEMORY="9g")
    submission = keyed(found, "key", "/s/1").submission
    assert submission.spark_conf.pop(RECORD_KEY)
    assert submission.spark_conf == {
        "spark.app.name": "counts",
        "spark.executor.instances": "2",
        "spark.sql.adaptive.enabled": "true",
    }
    assert submission.options == {"restart-strategy.type": "fixed-delay"}
    assert (submission.name, submission.arguments, submission.savepoint) == ("counts", ["--input", "data"], "/s/1")
    assert submission.idempotency_key == "key"
    assert submission.working_directory == str(folder)
    assert submission.secrets == {"KEY": "hush"}
    assert sorted(found.record.files) == ["file extra.txt", "script app.py"]
    assert record_in(keyed(found, "key", "").submission.spark_conf) == found.record


def test_names_of_secrets_are_no_secrets(folder: Path) -> None:
    found = wanted(folder, TEXT.replace("KEY=key.txt", "DB_PASSWORD=key.txt"))
    conf = keyed(found, "key", "").submission.spark_conf
    assert record_in(redacted(conf)) == found.record, "the cluster shows it whole"
    assert found.record.declaration.secrets == ["DB_PASSWORD=key.txt"]


def test_a_date_that_does_not_exist_is_a_mistake_in_the_file(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="is not YAML: day is out of range"):
        wanted(folder, TEXT.replace("[--input, data]", "[2026-02-30]"))


def test_what_was_declared_can_be_declared_again(folder: Path) -> None:
    first = wanted(folder)
    again = wanted(folder, msgspec.yaml.encode(first.record.declaration).decode())
    assert differences(first.record, again.record) == []


def test_a_record_of_this_release_stays_readable() -> None:
    record = record_in({RECORD_KEY: RECORD})
    assert record is not None
    assert msgspec.json.encode(record, order="sorted").decode() == RECORD
    assert record_in({}) is None


def test_a_record_of_a_newer_release_is_no_missing_one() -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        record_in({RECORD_KEY: RECORD.replace('"version":1', '"version":2')})


def test_a_record_that_is_nested_deeply_cannot_be_read() -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        record_in({RECORD_KEY: '{"of a newer release":' + "[" * 100_000})


def test_differences_name_each_field_and_changed_content(folder: Path) -> None:
    before = wanted(folder).record
    (folder / "jobs" / "app.py").write_text("print(2)\n")
    text = TEXT.replace("instances: 2", "instances: 3").replace("  spark.sql.adaptive.enabled: true\n", "")
    changes = differences(before, wanted(folder, text.replace("data]", "data, more]")).record)
    assert changes[0] == Change("arguments[2]", None, "more")
    lines = [str(change) for change in changes]
    assert lines[:3] == [
        "+ arguments[2]: more",
        "~ conf.spark.executor.instances: 2 -> 3",
        "- conf.spark.sql.adaptive.enabled: true",
    ]
    assert lines[3].startswith("~ content of script app.py: ")
    assert len(lines) == 4
    elsewhere = DeclaredJob(declaration=before.declaration, files=before.files, directory="/elsewhere")
    assert differences(before, elsewhere) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nscript: jobs/app.py", "version is missing"),
        ("version: 2\nname: x\nscript: jobs/app.py", "version: 2 is not a value that this release knows"),
        ("version: 1\nname: x", "either script or module"),
        ("version: 1\nname: x\nscript: a.py\nmodule: m", "either script or module"),
        ("version: 1\nname: x\nscript: jobs/app.py\nexecutors: 3", "unknown field 'executors'"),
        ("version: 1\nname: x\nscirpt: jobs/app.py", "unknown field 'scirpt': did you mean 'script'?"),
        (
            "version: 1\nname: x\nscript: jobs/app.py\nsavepoints: {intervall: 1h}",
            "unknown field 'intervall' in savepoints: did you mean 'interval'?",
        ),
        (
            "version: 1\nname: x\nscript: jobs/app.py\ninterval: 1h",
            "unknown field 'interval': it belongs in savepoints",
        ),
        (
            "version: 1\nname: x\nscript: jobs/app.py\nsavepoints: {interval: 1h, conf: {}}",
            "unknown field 'conf' in savepoints: it belongs at the top",
        ),
        ("version: 1\nname: ''\nscript: jobs/app.py", "name: expected at least 1 character"),
        ("version: 1\nname: [x]\nscript: jobs/app.py", "name: expected text, not a list"),
        ("version: 1\nname: x\nscript: jobs/app.py\nfiles: a", "files: expected a list, not text"),
        ("- version: 1", "expected fields with values, not a list"),
        ("version: 1\nname: x\nscript: none.py", "does not exist"),
        ("version: 1\nname: x\nscript: jobs/app.py\noptions: {rest.port: 1}", "says where the cluster is"),
        ("version: 1\nname: x\nscript: jobs/app.py\noptions: {blob.server.port: 1}", "a setting of the cluster's"),
        ("version: 1\nname: x\nscript: jobs/app.py\noptions: {restart-strategy.tpe: none}", "did you mean"),
        ("version: 1\nname: x\nscript: jobs/app.py\nconf: {spark.db.password: y}", "looks like a secret"),
        ("version: 1\nname: x\nscript: jobs/app.py\narguments: [--password, y]", "looks like a secret"),
        ("version: 1\nname: x\nscript: jobs/app.py\nconf: {spark.a: 'Bearer x'}", "looks like a secret"),
        ("version: 1\nname: x\nscript: jobs/app.py\nfiles: ['a,b']", "cannot have a comma"),
        ("a: [", "is not YAML"),
        ("[" * 2000, "is not YAML: it is nested too deeply"),
        ("version: !!int ''", "is not YAML: a value does not have the form"),
        ("version: !!timestamp x", "is not YAML: a value does not have the form"),
        ("version: " + "9" * 5000, "is not YAML: Exceeds the limit"),
        ("version: 1\nname: x\nscript: jobs/app.py\nconf: {spark.a: .nan}", "spark.a is not a finite number"),
        ("version: 1\nname: x\nscript: jobs/app.py\noptions: {job.priority: -.inf}", "is not a finite number"),
        ('version: 1\nname: "a\\ud800"\nscript: jobs/app.py', "which is no character"),
        ("x" * 70_000, "larger than 64 KiB"),
    ],
)
def test_mistakes_in_a_file_are_named(folder: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as error:
        wanted(folder, text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("program", "accepted"),
    [
        ({"script": "jobs/app.py"}, True),
        ({"module": "calendar"}, True),
        ({"script": "", "module": "calendar"}, True),
        ({"script": "jobs/app.py", "module": "calendar"}, False),
        ({"script": ""}, False),
        ({}, False),
    ],
)
def test_the_schema_accepts_the_programs_that_the_reader_accepts(
    folder: Path, program: dict[str, str], accepted: bool
) -> None:
    document = {"version": 1, "name": "counts", **program}
    assert jsonschema_rs.validator_for(schema()).is_valid(document) == accepted
    path = folder / "job.yaml"
    path.write_bytes(msgspec.yaml.encode(document))
    if accepted:
        assert read_declaration(path).name == "counts"
    else:
        with pytest.raises(InvalidInput, match="give either script or module"):
            read_declaration(path)
