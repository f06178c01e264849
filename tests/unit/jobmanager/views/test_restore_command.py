"""The command that starts a job from a savepoint, as a shell understands it."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from emberkeep.jobmanager.views.restore_command import restore_command
from emberkeep.jobs.model import FILE_OPTIONS, Artefact, ArtefactRole, EntryPoint, EntryPointKind, JobGraph
from tests.unit.rest.fake_gateway import job_graph, job_id

PLACE = "/data/savepoints/savepoint-1"
START = f"emberkeep savepoint restore {PLACE}"


def graph(**changes: object) -> JobGraph:
    bare: dict[str, object] = {"arguments": (), "spark_conf": {}, "options": {}}
    return job_graph(job_id(1), "flights", **{**bare, **changes})


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (EntryPoint(kind=EntryPointKind.SCRIPT, name="app.py", source_path="/opt/a/my app.py"), "'/opt/a/my app.py'"),
        (EntryPoint(kind=EntryPointKind.SCRIPT, name="app.py"), "app.py"),
        (EntryPoint(kind=EntryPointKind.MODULE, name="jobs.etl"), "-m jobs.etl"),
    ],
)
def test_it_names_the_code(entry: EntryPoint, words: str) -> None:
    assert restore_command(PLACE, graph(entry_point=entry)) == f"{START} {words}"


def test_it_has_options_files_and_arguments_as_they_were_given() -> None:
    def artefact(role: ArtefactRole, name: str, fragment: str = "") -> Artefact:
        return Artefact(role=role, name=name, sha256="ab" * 32, size=1, fragment=fragment)

    submitted = graph(
        artefacts=(
            artefact(ArtefactRole.SCRIPT, "flights.py"),
            artefact(ArtefactRole.PY_FILE, "deps.zip"),
            artefact(ArtefactRole.ARCHIVE, "python.tar.gz", "environment"),
        ),
        spark_conf={
            "spark.submit.pyFiles": "s3://code/more.py",
            "spark.sql.shuffle.partitions": "8",
            "spark.app.name": "flights",
            "spark.emberkeep.declaration": "{}",
        },
        options={"restart-strategy.type": "fixed-delay"},
        namespace="team-a",
        secrets={"KAFKA": "encrypted"},
        arguments=("--input", "it's here", "$HOME", "--", "-D"),
    )
    words = shlex.split(restore_command(PLACE, submitted))
    assert words == [
        *START.split(),
        *("--py-files", "deps.zip,s3://code/more.py", "--archives", "python.tar.gz#environment"),
        *("--conf", "spark.sql.shuffle.partitions=8", "-D", "restart-strategy.type=fixed-delay"),
        *("--secret", "KAFKA", "--namespace", "team-a"),
        *("flights.py", "--input", "it's here", "$HOME", "--", "-D"),
    ]


def test_a_job_that_is_no_longer_known_has_a_place_for_its_script() -> None:
    assert restore_command(PLACE, None) == f"{START} app.py"


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it in a shell in which it only prints its words."""
    script = f"emberkeep() {{ printf '%s\\n' \"$@\"; }}; {command}"
    return subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=False)


def test_secret_values_are_variables_without_which_nothing_starts() -> None:
    submitted = graph(
        spark_conf={"spark.hadoop.fs.s3a.secret.key": "hunter2"},
        arguments=("--db-password", "hunter2", "DB_PASS=hunter2", "jdbc:x://me:hunter2@db/x"),
    )
    command = restore_command(PLACE, submitted)
    assert "hunter2" not in command
    values = {
        "SECRET_SPARK_HADOOP_FS_S3A_SECRET_KEY": "one",
        "SECRET_DB_PASSWORD": "two $(reboot)",
        "SECRET_DB_PASS": "three",
        "SECRET": "four",
    }
    told = shell(command, **values)
    assert told.stdout.splitlines() == [
        *("savepoint", "restore", PLACE, "--conf", "spark.hadoop.fs.s3a.secret.key=one"),
        *("flights.py", "--db-password", "two $(reboot)", "DB_PASS=three", "four"),
    ]
    for name in values:
        refused = shell(command, **{key: value for key, value in values.items() if key != name})
        assert refused.returncode != 0
        assert name in refused.stderr
        assert not refused.stdout


def test_a_secret_setting_without_a_value_stays_as_it_is() -> None:
    submitted = graph(spark_conf={"spark.db.password": ""})
    assert restore_command(PLACE, submitted) == f"{START} --conf spark.db.password= {submitted.entry_point.name}"


def test_each_secret_value_has_a_variable_of_its_own() -> None:
    submitted = graph(
        spark_conf={"spark.jars": "https://me:hunter2@repo/a,https://me:hunter3@repo/b"},
        secrets={"SECRET": "encrypted"},  # its variable is the job's
        arguments=(
            *("--src.token", "hunter2", "--src-token", "hunter2", "src_token_2=hunter2", "src_token=hunter2"),
            *("redis://:hunter2@cache", "redis://:hunter3@cache"),
        ),
    )
    variables = [
        *("SECRET_JARS", "SECRET_JARS_2"),
        *("SECRET_SRC_TOKEN", "SECRET_SRC_TOKEN_2", "SECRET_SRC_TOKEN_2_2", "SECRET_SRC_TOKEN_3"),
        *("SECRET_2", "SECRET_3"),
    ]
    told = shell(restore_command(PLACE, submitted), **{name: name.lower() for name in variables})
    assert told.stdout.splitlines()[3:] == [
        *("--jars", "secret_jars,secret_jars_2", "--secret", "SECRET", "flights.py"),
        *("--src.token", "secret_src_token", "--src-token", "secret_src_token_2"),
        *("src_token_2=secret_src_token_2_2", "src_token=secret_src_token_3"),
        *("secret_2", "secret_3"),
    ]


ADDRESSES = ["https://me:hunter2@repo/x.jar", "https://bucket/x?X-Amz-Algorithm=A&X-Amz-Signature=hunter2"]


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize(("option", "key"), FILE_OPTIONS.values())
def test_an_address_with_a_password_among_files_is_a_variable(option: str, key: str, address: str) -> None:
    command = restore_command(PLACE, graph(spark_conf={key: f"s3://code/it's,{address},https://repo/b"}))
    assert "hunter2" not in command
    variable = f"SECRET_{option.removeprefix('--').replace('-', '_').upper()}"
    told = shell(command, **{variable: address})
    assert told.stdout.splitlines()[3:] == [option, f"s3://code/it's,{address},https://repo/b", "flights.py"]
    refused = shell(command)
    assert refused.returncode != 0
    assert variable in refused.stderr


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_with_a_password_elsewhere_is_a_variable(address: str) -> None:
    submitted = graph(
        spark_conf={"spark.jars.repositories": address},
        options={"my.place": address},
        arguments=(address, "--from", address, f"--to={address}", f"to={address}"),
    )
    command = restore_command(PLACE, submitted)
    assert "hunter2" not in command
    names = ("SECRET", "SECRET_FROM", "SECRET_TO", "SECRET_TO_2")
    told = shell(command, SECRET_SPARK_JARS_REPOSITORIES="r", SECRET_MY_PLACE="p", **{name: name for name in names})
    assert told.stdout.splitlines()[3:] == [
        *("--conf", "spark.jars.repositories=r", "-D", "my.place=p", "flights.py"),
        *("SECRET", "--from", "SECRET_FROM", "--to=SECRET_TO", "to=SECRET_TO_2"),
    ]


@pytest.mark.parametrize("evil", ["$(reboot)'", "`reboot`", '"; reboot; "', "a\nb"])
def test_nothing_in_it_is_carried_out(evil: str) -> None:
    told = shell(restore_command(evil, graph(arguments=(evil,), options={"x": evil})))
    assert told.stdout == "\n".join(["savepoint", "restore", evil, "-D", f"x={evil}", "flights.py", evil, ""])
