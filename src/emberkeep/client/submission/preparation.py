"""Turn a command line into a job that can be submitted: check it, hash its files, upload what is missing."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

import msgspec

from emberkeep.base.configuration.options.blobs import OFFLOAD_MIN_SIZE
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.blobs.model import BlobContent, BlobKind
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.blob_upload import UploadItem, UploadProgress, upload_group
from emberkeep.client.submission.checked_values import check_values
from emberkeep.client.submission.job_files import JobFile, parse_file_list
from emberkeep.client.submission.packed_environment import check_environment
from emberkeep.client.submission.preflight import check_module, check_script
from emberkeep.client.submission.resources import job_resources
from emberkeep.client.submission.secret_values import secret_values
from emberkeep.client.submission.spark_options import SparkOptions, spark_configuration
from emberkeep.jobs.model import FILE_OPTIONS, Artefact, ArtefactRole, EntryPoint, EntryPointKind
from emberkeep.protocol.rest_submission import JobSubmission, OffloadedSubmission

MAX_NAME = 256  # characters


@dataclass(frozen=True)
class Program:
    """The program to run: a script's path or a module, with its arguments."""

    script: str | None
    module: str | None
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class PreparedJob:
    """A submission that passed all local checks.

    ``contents`` maps each artefact's SHA-256 to its file. A submission of more than ``offload_min_size`` bytes is
    uploaded like a file, instead of being the request's body.
    """

    submission: JobSubmission
    contents: Mapping[str, Path]
    notices: tuple[str, ...]
    offload_min_size: int


def prepare(
    program: Program,
    options: SparkOptions,
    job_options: Mapping[str, str],
    environ: Mapping[str, str],
    *,
    offload_min_size: int = OFFLOAD_MIN_SIZE.default,
    savepoint: str = "",
    namespace: str = "",
    secrets: Iterable[str] = (),
) -> PreparedJob:
    """Check and hash everything; send nothing. Raises InvalidInput.

    ``savepoint``: location of the savepoint to start from. ``namespace``: the job's; "" for the caller's own.
    ``secrets``: the words of ``--secret``. ``offload_min_size``: see PreparedJob.
    """
    merged = spark_configuration(options, environ)
    conf, notices = dict(merged.values), list(merged.notices)
    resources = job_resources(conf)
    check_values(conf)
    files = _take_files(conf)
    notice = check_environment(conf, files)
    if notice is not None:
        notices.append(notice)
    entry_point, script = _entry_point(program, options, files, notices)
    if script is not None:
        files = [script, *files]
    name = _job_name(conf, entry_point)
    artefacts = [file.artefact() for file in files]
    _refuse_equal_names(artefacts, files)
    submission = JobSubmission(
        name=name,
        entry_point=entry_point,
        arguments=list(program.arguments),
        artefacts=artefacts,
        spark_conf=conf,
        options=dict(job_options),
        working_directory=str(Path.cwd()),
        resources=resources,
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        idempotency_key=token_hex(16),
        jobid=token_hex(16),
        savepoint=savepoint,
        namespace=namespace,
        secrets=secret_values(secrets, environ),
    )
    _refuse_other_bytes(submission)
    contents = {artefact.sha256: file.path for artefact, file in zip(artefacts, files, strict=True)}
    return PreparedJob(submission, contents, tuple(notices), offload_min_size)


def _refuse_other_bytes(submission: JobSubmission) -> None:
    """Raise InvalidInput if the submission has text that is not UTF-8. Secrets were checked before."""
    try:
        msgspec.json.encode(msgspec.structs.replace(submission, secrets={}))
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"{error.object[:80]!r} is not UTF-8, and a job's arguments, settings and files must be",
            hint="rename the file or directory, or pass the text in UTF-8",
        ) from None


async def upload(client: RestClient, job: PreparedJob, progress: UploadProgress) -> JobSubmission | OffloadedSubmission:
    """Upload the job's files that the cluster does not have. Return the submission to send.

    A large submission is uploaded as well, and a reference to it is returned. Raises InvalidInput (a file changes
    during the upload), and what RestClient raises.
    """
    submission = job.submission
    items = {
        artefact.sha256: UploadItem(
            artefact.name, BlobContent(sha256=artefact.sha256, size=artefact.size), job.contents[artefact.sha256]
        )
        for artefact in submission.artefacts
    }
    encoded = msgspec.json.encode(msgspec.structs.replace(submission, secrets={}))
    off_loaded = None
    if len(encoded) > job.offload_min_size:
        content = BlobContent(sha256=hashlib.sha256(encoded).hexdigest(), size=len(encoded), kind=BlobKind.TRANSIENT)
        items[content.sha256] = UploadItem("the job's configuration", content, encoded)
        off_loaded = OffloadedSubmission(
            jobid=submission.jobid,
            blob=content,
            idempotency_key=submission.idempotency_key,
            secrets=submission.secrets,
        )
    if items:
        await upload_group(client, JobId(submission.jobid), items.values(), progress)
    return submission if off_loaded is None else off_loaded


def _take_files(conf: dict[str, str]) -> list[JobFile]:
    """Remove local files from the configuration and return them. Addresses that Spark fetches itself stay in it."""
    files: list[JobFile] = []
    for role, (_, key) in FILE_OPTIONS.items():
        found = parse_file_list(role, conf.pop(key, ""))
        files += found.local
        if found.remote:
            conf[key] = ",".join(found.remote)
    return files


def _entry_point(
    program: Program, options: SparkOptions, files: list[JobFile], notices: list[str]
) -> tuple[EntryPoint, JobFile | None]:
    if program.module is not None:
        py_files = [file.path for file in files if file.role is ArtefactRole.PY_FILE]
        notice = check_module(program.module, Path.cwd(), py_files)
        if notice is not None:
            notices.append(notice)
        return EntryPoint(kind=EntryPointKind.MODULE, name=program.module), None
    if program.script is None:
        raise InvalidInput("no script given", field="script", hint="emberkeep run [options] app.py [arguments]")
    path = check_script(program.script, options.main_class)
    entry_point = EntryPoint(kind=EntryPointKind.SCRIPT, name=path.name, source_path=str(path))
    return entry_point, JobFile(ArtefactRole.SCRIPT, path)


def _job_name(conf: dict[str, str], entry_point: EntryPoint) -> str:
    """Return ``--name``, else spark.app.name, else the script's or module's name.

    The script may still rename its Spark application.
    """
    name = conf.get("spark.app.name", "").strip() or entry_point.name
    if len(name) > MAX_NAME:
        raise InvalidInput(
            f"the job's name has {len(name)} characters", field="--name", hint=f"{MAX_NAME} characters at most"
        )
    if not name.isprintable():
        raise InvalidInput("the job's name has control characters", field="--name", hint="use plain text")
    return name


def _refuse_equal_names(artefacts: list[Artefact], files: list[JobFile]) -> None:
    """Raise InvalidInput if two different files have the same name: all files of a job are in one directory."""
    seen: dict[str, tuple[str, Path]] = {}
    for artefact, file in zip(artefacts, files, strict=True):
        name = artefact.fragment or artefact.name
        sha256, path = seen.setdefault(name, (artefact.sha256, file.path))
        if sha256 != artefact.sha256:
            raise InvalidInput(
                f"{path} and {file.path} are different files, and both would be called {name}",
                hint="rename one of them",
            )
