"""Checks that a submission can become a job graph. Pure functions; a refusal names the field and what is expected."""

from __future__ import annotations

import re
from collections.abc import Mapping

from emberkeep.base.configuration.options.savepoints import SAVEPOINT_DIRECTORY
from emberkeep.base.errors import InvalidInput
from emberkeep.jobs.job_secrets import check_secrets
from emberkeep.jobs.model import Artefact, ArtefactRole, EntryPointKind
from emberkeep.protocol.rest_submission import IDEMPOTENCY_HEADER, JobSubmission
from emberkeep.rest.serving.locations import check_location

MAX_NAME = 256  # characters
MAX_ARTEFACTS = 1000
MAX_FILE_NAME = 255  # bytes, the limit of most file systems

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_PYTHON = re.compile(r"3\.\d{1,3}")
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_SAVEPOINT_DIRECTORY = (SAVEPOINT_DIRECTORY.key, *SAVEPOINT_DIRECTORY.deprecated_keys)
_LINKED_ROLES = (ArtefactRole.FILE, ArtefactRole.ARCHIVE)


def check_submission(submission: JobSubmission) -> None:
    """Raise InvalidInput for the first invalid field. The JobManager checks whether the job fits the cluster."""
    _check_name(submission.name)
    if submission.artefacts and not submission.jobid:
        raise InvalidInput(
            "a job with artefacts needs an id: the artefacts are uploaded below that id",
            field="jobid",
            hint="choose 32 random hex digits",
        )
    _check_artefacts(submission.artefacts)
    _check_entry_point(submission)
    _check_resources(submission)
    for index, argument in enumerate(submission.arguments):
        _no_nul(argument, f"arguments[{index}]")
    _check_settings(submission.spark_conf, "spark_conf")
    _check_settings(submission.options, "options")
    for key in _SAVEPOINT_DIRECTORY:
        if place := submission.options.get(key):
            check_location(place, f"options.{key}")
    _no_nul(submission.working_directory, "working_directory")
    if submission.working_directory and not submission.working_directory.startswith("/"):
        raise InvalidInput(f"{submission.working_directory[:80]!r} is not absolute", field="working_directory")
    if submission.savepoint:
        check_location(submission.savepoint, "savepoint")
    check_secrets(submission.secrets)
    if not _PYTHON.fullmatch(submission.python):
        raise InvalidInput(f"{submission.python[:20]!r} is not a Python version such as '3.11'", field="python")


def idempotency_key(in_body: str, header: str | None) -> str:
    """Return the key from the header or the body.

    Raises InvalidInput if both are empty, if they differ, or if the key is not 1 to 200 printable ASCII characters.
    """
    if header is not None and in_body and header != in_body:
        raise InvalidInput(
            f"the {IDEMPOTENCY_HEADER} header and idempotency_key differ",
            field=IDEMPOTENCY_HEADER,
            hint="send one of them",
        )
    key = in_body if header is None else header
    if not key:
        raise InvalidInput(
            "a submission needs an idempotency key",
            field=IDEMPOTENCY_HEADER,
            hint="choose a random key for each job; use the same key to repeat a submission",
        )
    if not _KEY.fullmatch(key):
        raise InvalidInput("an idempotency key is 1 to 200 printable ASCII characters", field=IDEMPOTENCY_HEADER)
    return key


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > MAX_NAME or _CONTROL.search(name):
        raise InvalidInput(
            f"a job's name has 1 to {MAX_NAME} characters, not only blanks, and no control characters", field="name"
        )


def _check_artefacts(artefacts: list[Artefact]) -> None:
    if len(artefacts) > MAX_ARTEFACTS:
        raise InvalidInput(f"{len(artefacts)} artefacts are more than the {MAX_ARTEFACTS} allowed", field="artefacts")
    by_name: dict[str, str] = {}
    for index, artefact in enumerate(artefacts):
        field = f"artefacts[{index}]"
        _check_file_name(artefact.name, f"{field}.name")
        if artefact.fragment:
            _check_file_name(artefact.fragment, f"{field}.fragment")
            if artefact.role not in _LINKED_ROLES:
                raise InvalidInput("only files and archives can have a #name", field=f"{field}.fragment")
        if not _SHA256.fullmatch(artefact.sha256):
            raise InvalidInput(f"{artefact.sha256[:80]!r} is not a SHA-256 (64 hex digits)", field=f"{field}.sha256")
        if not 0 <= artefact.size < 2**63:
            raise InvalidInput(f"{artefact.size} is not a size", field=f"{field}.size")
        seen_as = artefact.fragment or artefact.name
        if by_name.setdefault(seen_as, artefact.sha256) != artefact.sha256:
            raise InvalidInput(
                f"two different files have the name {seen_as!r}", field=f"{field}.name", hint="rename one"
            )


def _check_file_name(name: str, field: str) -> None:
    if not name or name in (".", "..") or "/" in name or _CONTROL.search(name) or len(name.encode()) > MAX_FILE_NAME:
        raise InvalidInput(
            f"{name[:80]!r} is not a file name", field=field, hint="a base name: no '/', no control characters"
        )


def _check_entry_point(submission: JobSubmission) -> None:
    entry_point = submission.entry_point
    scripts = [artefact.name for artefact in submission.artefacts if artefact.role is ArtefactRole.SCRIPT]
    _no_nul(entry_point.source_path, "entry_point.source_path")
    if entry_point.kind is EntryPointKind.MODULE:
        if not _MODULE.fullmatch(entry_point.name):
            raise InvalidInput(f"{entry_point.name[:80]!r} is not a module's name", field="entry_point.name")
        if scripts:
            raise InvalidInput("a job that runs a module has no script", field="artefacts", hint="send it as py-file")
    elif scripts != [entry_point.name]:
        raise InvalidInput(
            f"exactly one artefact with role script and the name {entry_point.name[:80]!r} is needed",
            field="entry_point.name",
        )


def _check_resources(submission: JobSubmission) -> None:
    resources = submission.resources
    minima = {
        "driver_memory_mb": 1,
        "driver_overhead_mb": 0,
        "executors": 0,
        "executor_cores": 1,
        "executor_memory_mb": 1,
        "executor_overhead_mb": 0,
    }
    for name, minimum in minima.items():
        value = getattr(resources, name)
        if not minimum <= value < 2**31:
            raise InvalidInput(f"{value} is less than {minimum} or too large", field=f"resources.{name}")
    for field, amounts in (
        ("executor_resources", resources.executor_resources),
        ("driver_resources", resources.driver_resources),
    ):
        for name, amount in amounts.items():
            if not _KEY.fullmatch(name):
                raise InvalidInput(f"{name[:80]!r} is not a resource's name", field=f"resources.{field}")
            if not 1 <= amount < 2**31:
                raise InvalidInput(f"{amount} is less than 1 or too large", field=f"resources.{field}.{name}")


def _check_settings(settings: Mapping[str, str], field: str) -> None:
    for key, value in settings.items():
        if not _KEY.fullmatch(key):
            raise InvalidInput(f"{key[:80]!r} is not a configuration key", field=field)
        _no_nul(value, f"{field}.{key}")


def _no_nul(text: str, field: str) -> None:
    if "\0" in text:
        raise InvalidInput("it contains a NUL character", field=field)
