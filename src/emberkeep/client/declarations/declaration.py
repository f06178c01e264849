"""The file of a declared job, and the record of it that the job carries.

The record is a property of the job's Spark configuration, so the cluster stores it with the job and every client can
read it. Its fields have a version: ``Declaration.version``.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from msgspec import Meta

from emberkeep.base.configuration.yaml_documents import load_yaml
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import InvalidInput
from emberkeep.base.redaction import is_secret, redacted_arguments
from emberkeep.client.declarations.mistakes import mistake
from emberkeep.client.declarations.policies import SavepointSchedule, UpgradePolicy
from emberkeep.client.submission.job_options import job_options, refuse_cluster_options
from emberkeep.client.submission.preparation import PreparedJob, Program, prepare
from emberkeep.client.submission.spark_options import SparkOptions

RECORD_KEY = "spark.emberkeep.declaration"
_LARGEST = 64 * 1024  # bytes of a file, which becomes part of the job's configuration

_INSTEAD = "name it in `secrets`, and read the environment variable in the script"

Value = str | int | float | bool
Paths = Annotated[list[str], Meta(description="Paths or patterns, relative to this file.")]


class Declaration(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="kebab"
):
    """A job that should run: one file for ``emberkeep apply``."""

    version: Annotated[Literal[1], Meta(description="Version of the form of this file.")]
    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=256,
            description="Name of the job. The cluster runs at most one declared job of this name in a namespace.",
        ),
    ]
    script: Annotated[str, Meta(description="PySpark script, relative to this file. Either this or `module`.")] = ""
    module: Annotated[str, Meta(description="Module to run, as `python -m` does.")] = ""
    arguments: Annotated[list[str], Meta(description="Arguments of the script.")] = []
    namespace: Annotated[str, Meta(description="Namespace of the job. Default: that of the caller's token.")] = ""
    conf: Annotated[dict[str, Value], Meta(description="Spark properties, such as `spark.executor.memory: 2g`.")] = {}
    options: Annotated[
        dict[str, Value],
        Meta(description="Emberkeep's settings of the job, such as `restart-strategy.type: fixed-delay`."),
    ] = {}
    py_files: Annotated[Paths, Meta(description="Files for the Python path, as `--py-files`.")] = []
    files: Annotated[Paths, Meta(description="Files for the executors, as `--files`.")] = []
    archives: Annotated[Paths, Meta(description="Archives for the executors, as `--archives`.")] = []
    jars: Annotated[Paths, Meta(description="Jars, as `--jars`.")] = []
    secrets: Annotated[
        list[str], Meta(description="Environment variables with secret values, `NAME=FILE` or `NAME`, as `--secret`.")
    ] = []

    savepoints: Annotated[
        SavepointSchedule | None, Meta(description="Savepoints that the cluster makes by itself. Default: its own.")
    ] = None
    upgrade: Annotated[
        UpgradePolicy | None, Meta(description="How a running job gets a changed declaration. Not compared.")
    ] = None


class DeclaredJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a declaration: its text, the SHA-256 of each file, and the directory that its paths begin at."""

    declaration: Declaration
    files: dict[str, str]
    directory: str = ""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The declared job as it should run now: the record, and the job that can be submitted."""

    record: DeclaredJob
    job: PreparedJob


_FIELDS = {
    "": Declaration.__struct_encode_fields__,
    "savepoints": SavepointSchedule.__struct_encode_fields__,
    "upgrade": UpgradePolicy.__struct_encode_fields__,
}


def read_declaration(path: Path) -> Declaration:
    """Return the declaration in a YAML file. Raises InvalidInput that names the file and the field."""
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise InvalidInput(f"{path} is larger than {_LARGEST // 1024} KiB", field="FILE")
        declaration = msgspec.convert(load_yaml(text), Declaration)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}", field="FILE") from None
    except msgspec.ValidationError as error:
        raise InvalidInput(
            f"{path}: {mistake(str(error), _FIELDS)}",
            field="FILE",
            hint="`emberkeep apply --schema` prints the fields of a declared job",
        ) from None
    except yaml.YAMLError as error:
        raise InvalidInput(f"{path} is not YAML: {error}", field="FILE") from None
    if bool(declaration.script) == bool(declaration.module):
        raise InvalidInput(f"{path}: give either script or module", field="script")
    if declaration.upgrade is not None:
        declaration.upgrade.within_ms()
    _refuse_unwritable(path, declaration)
    _refuse_secrets(declaration)
    return declaration


def wanted_job(path: Path, environ: Mapping[str, str], *, offload_min_size: int) -> Wanted:
    """Return the job that the file declares, with its files hashed. Raises InvalidInput.

    The paths in the file, and the job's working directory, begin at the file's directory.
    """
    declaration, directory = read_declaration(path), path.absolute().parent
    job = prepared_job(declaration, directory, environ, offload_min_size=offload_min_size)
    files = {f"{each.role.value} {each.fragment or each.name}": each.sha256 for each in job.submission.artefacts}
    record = DeclaredJob(declaration=declaration, files=files, directory=os.fspath(directory))
    shown = msgspec.structs.replace(declaration, secrets=[])  # these name files, not values
    if is_secret(RECORD_KEY, msgspec.json.encode(shown).decode()):
        raise InvalidInput(f"a value in {path} looks like a secret", field="FILE", hint=_INSTEAD)
    return Wanted(record, job)


def prepared_job(
    declaration: Declaration, directory: Path, environ: Mapping[str, str], *, offload_min_size: int
) -> PreparedJob:
    """Check the declared job and hash its files; send nothing. Raises InvalidInput.

    Paths, and the job's working directory, begin at ``directory``: the current directory changes to it for a while.
    The client's spark-defaults.conf and variables such as SPARK_HOME are not read: the declaration alone decides.
    """
    options = _job_options(declaration)
    with chdir(directory):
        return prepare(
            Program(declaration.script or None, declaration.module or None, tuple(declaration.arguments)),
            _spark_options(declaration),
            options,
            {name: value for name, value in environ.items() if not name.startswith("SPARK_")},
            offload_min_size=offload_min_size,
            namespace=declaration.namespace,
            secrets=declaration.secrets,
        )


def keyed(wanted: Wanted, key: str, savepoint: str) -> PreparedJob:
    """Return the job to submit: with its record, under this idempotency key, from this savepoint ("" for none)."""
    submission = msgspec.structs.replace(
        wanted.job.submission,
        spark_conf=wanted.job.submission.spark_conf | {RECORD_KEY: _encoded(wanted.record)},
        idempotency_key=key,
        savepoint=savepoint,
    )
    return dataclasses.replace(wanted.job, submission=submission)


def record_in(spark_conf: Mapping[str, str]) -> DeclaredJob | None:
    """Return the record in a job's configuration; None if the job was not declared.

    Raises InvalidInput if it is the record of a newer release.
    """
    text = spark_conf.get(RECORD_KEY)
    if text is None:
        return None
    try:
        return from_json(text, DeclaredJob)
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f"the job's declaration cannot be read: {error}", hint="use the release that applied it, or a newer one"
        ) from None


def as_text(value: Value) -> str:
    """Return a value of the file as Spark and Emberkeep write it.

    >>> as_text(True), as_text(3)
    ('true', '3')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def _encoded(record: DeclaredJob) -> str:
    # The cluster hides what looks like `password=…`. In ``secrets``, `DB_PASSWORD=FILE` only names a file.
    return msgspec.json.encode(record, order="sorted").decode().replace("=", "\\u003d")


def _spark_options(declaration: Declaration) -> SparkOptions:
    return SparkOptions(
        conf=tuple(f"{key}={as_text(value)}" for key, value in declaration.conf.items()),
        name=declaration.name,
        py_files=_listed(declaration.py_files),
        files=_listed(declaration.files),
        archives=_listed(declaration.archives),
        jars=_listed(declaration.jars),
    )


def _job_options(declaration: Declaration) -> dict[str, str]:
    scheduled = {} if declaration.savepoints is None else declaration.savepoints.options()
    for key in scheduled.keys() & declaration.options.keys():
        raise InvalidInput(f"{key} is in `savepoints` and in `options`", field=key, hint="keep one of them")
    settings = {key: f"{key}={as_text(value)}" for key, value in (declaration.options | scheduled).items()}
    refuse_cluster_options(list(settings.values()))
    for key, setting in settings.items():
        if not job_options([setting]):
            raise InvalidInput(
                f"options.{key}: it says where the cluster is, and is no setting of a job",
                field=key,
                hint="give it to the command: `emberkeep apply -D …`, --url or the configuration file",
            )
    return job_options(list(settings.values()))


def _listed(paths: list[str]) -> str | None:
    for path in paths:
        if "," in path:
            raise InvalidInput(f"{path}: the path of a job's file cannot have a comma", hint="one path for each entry")
    return ",".join(paths) if paths else None


def _refuse_unwritable(path: Path, declaration: Declaration) -> None:
    """Raise InvalidInput for what the record, which is JSON, cannot have."""
    for key, value in (declaration.conf | declaration.options).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput(f"{path}: the value of {key} is not a finite number", field=key, hint="quote it")
    try:
        msgspec.json.encode(declaration)
    except UnicodeEncodeError:
        raise InvalidInput(f"{path} has an escape such as \\ud800, which is no character", field="FILE") from None


def _refuse_secrets(declaration: Declaration) -> None:
    """Raise InvalidInput for what looks like a secret: the record is shown to everyone who sees the job."""
    for key, value in (declaration.conf | declaration.options).items():
        if is_secret(key, as_text(value)):
            raise InvalidInput(f"{key} looks like a secret, which a declaration cannot have", field=key, hint=_INSTEAD)
    if redacted_arguments(declaration.arguments) != declaration.arguments:
        raise InvalidInput("arguments: one looks like a secret", field="arguments", hint=_INSTEAD)


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a declared job's file. Its name, `$id`, ends with the version of the file's form."""
    generated = msgspec.json.schema(Declaration)
    fields = generated["$defs"][Declaration.__name__]
    fields["oneOf"] = [
        {"required": [program], "properties": {program: {"minLength": 1}}} for program in ("script", "module")
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:emberkeep:declared-job:1",
        "title": "A declared job of Emberkeep",
        **generated,
    }
