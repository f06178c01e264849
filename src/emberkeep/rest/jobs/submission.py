"""Submission of jobs: in the request's body, or off-loaded to a BLOB that the body names (BLOB-19)."""

from __future__ import annotations

import asyncio

import msgspec

from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Absent, EmberkeepError, InvalidInput
from emberkeep.base.identity import Role
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.base.request_context import name_target
from emberkeep.blobs.errors import NotUploaded
from emberkeep.blobs.model import NO_JOB, BlobKey, BlobKind
from emberkeep.identities.job_access import namespace_of_new_job, owner_name, sees
from emberkeep.jobmanager.views.cluster import Submission
from emberkeep.jobs.model import JobGraph
from emberkeep.protocol.limits import SUBMISSION_BYTES
from emberkeep.protocol.rest import API_PREFIX
from emberkeep.protocol.rest_submission import IDEMPOTENCY_HEADER, JobSubmission, JobSubmitted, OffloadedSubmission
from emberkeep.rest.jobs.savepoint_access import check_savepoint_access
from emberkeep.rest.jobs.submission_checks import check_submission, idempotency_key
from emberkeep.rest.serving.api import Api
from emberkeep.rest.serving.invalid_body import invalid_body
from emberkeep.rest.serving.routing import CheckedRequest, Header, Route


async def submit(call: CheckedRequest) -> msgspec.Struct:
    api, header = call.api, call.request.headers.get(IDEMPOTENCY_HEADER)
    try:
        if isinstance(call.body, OffloadedSubmission):
            accepted = await _submit_offloaded(call, call.body, header)
        else:
            accepted = await _submit(call, call.body, header)
    except EmberkeepError:
        api.metrics.submitted("refused")
        raise
    api.metrics.submitted("created" if accepted.created else "repeated")
    name_target(call.request, jobid=accepted.job_id)
    return JobSubmitted(jobid=accepted.job_id, job_url=f"{API_PREFIX}/jobs/{accepted.job_id}", created=accepted.created)


async def _submit(call: CheckedRequest, submission: JobSubmission, header: str | None) -> Submission:
    check_submission(submission)
    if submission.savepoint:
        await check_savepoint_access(call, submission.savepoint)
    key = idempotency_key(submission.idempotency_key, header)
    return await call.api.gateway.submit(job_graph(call, submission, key))


def job_graph(call: CheckedRequest, submission: JobSubmission, key: str) -> JobGraph:
    """Return the graph of a submission that was checked. ``key``: its idempotency key."""
    api, identity = call.api, call.identity
    job_id = _chosen(submission.jobid) if submission.jobid else JobId(api.system.ids.hex32())
    return JobGraph(
        job_id=job_id,
        name=submission.name,
        entry_point=submission.entry_point,
        arguments=tuple(submission.arguments),
        artefacts=tuple(submission.artefacts),
        spark_conf=submission.spark_conf,
        options=submission.options,
        working_directory=submission.working_directory,
        resources=submission.resources,
        python=submission.python,
        submitted_ms=api.now_ms(),
        idempotency_key=key,
        savepoint=submission.savepoint,
        owner=owner_name(identity),
        namespace=namespace_of_new_job(identity, submission.namespace),
        secrets=api.job_secrets.seal(job_id, submission.secrets),
    )


async def _submit_offloaded(call: CheckedRequest, offloaded: OffloadedSubmission, header: str | None) -> Submission:
    api, key = call.api, idempotency_key(offloaded.idempotency_key, header)
    job_id, blob = _chosen(offloaded.jobid), _blob_key(offloaded)
    try:
        submission = await _read(api, job_id, blob, offloaded.blob.size)
    except Absent:
        # A repeated request may arrive after the job has ended and its BLOBs were deleted.
        if await _started_by(call, job_id, key):
            return Submission(job_id=job_id, created=False)
        raise NotUploaded(f"{blob} has not been uploaded for job {job_id}", field="blob") from None
    if (submission.jobid, submission.idempotency_key or key) != (job_id, key):
        raise InvalidInput("the submission in the BLOB has another jobid or idempotency_key", field="blob")
    if submission.secrets:
        raise InvalidInput(
            "the submission in the BLOB has secrets, and a BLOB is not encrypted",
            field="blob",
            hint="send the secrets in the request's own body",
        )
    return await _submit(call, msgspec.structs.replace(submission, secrets=offloaded.secrets), key)


def _chosen(text: str) -> JobId:
    job_id = parse_job_id(text)
    if job_id == NO_JOB:
        raise InvalidInput("no job has the id of 32 zeros", field="jobid", hint="choose 32 random hex digits")
    return job_id


def _blob_key(offloaded: OffloadedSubmission) -> BlobKey:
    if offloaded.blob.kind is not BlobKind.TRANSIENT:
        raise InvalidInput(
            "an off-loaded submission must be a transient BLOB", field="blob.kind", hint="use a key of kind 't'"
        )
    if not 0 <= offloaded.blob.size <= SUBMISSION_BYTES:
        raise InvalidInput(
            f"a submission of {offloaded.blob.size} bytes: {SUBMISSION_BYTES} are allowed", field="blob.size"
        )
    try:
        return BlobKey(kind=BlobKind.TRANSIENT, sha256=offloaded.blob.sha256)
    except ValueError as error:
        raise InvalidInput(str(error), field="blob.sha256") from None


async def _read(api: Api, job_id: JobId, key: BlobKey, size: int) -> JobSubmission:
    """Return the submission in a BLOB; hold the BLOB while reading it. Raises Absent, InvalidInput."""
    holder = f"submission-{api.system.ids.hex32()}"
    api.blobs.hold(job_id, key, [holder])
    try:
        path = await api.blobs.path(job_id, key)

        def decode() -> JobSubmission:
            if path.stat().st_size != size:
                raise InvalidInput(f"{key} has {path.stat().st_size} bytes, not {size}", field="blob.size")
            return from_json(path.read_bytes(), JobSubmission)

        return await asyncio.to_thread(decode)
    except msgspec.DecodeError as error:
        raise invalid_body(error) from None
    except FileNotFoundError:
        raise Absent(f"BLOB {key} of job {job_id} has just been deleted") from None
    finally:
        api.blobs.release(job_id, key, holder)


async def _started_by(call: CheckedRequest, job_id: JobId, key: str) -> bool:
    """True if a submission with this key has started the job, which the caller sees."""
    try:
        view = await call.api.gateway.job(job_id)
    except Absent:
        return False
    known = view.graph or view.result
    return known is not None and known.idempotency_key == key and sees(call.identity, view)


ROUTES = (
    Route(
        "POST",
        "/jobs",
        submit,
        "Submit a job",
        "Jobs",
        role=Role.SUBMITTER,
        shared=True,
        status=202,
        reply=JobSubmitted,
        body=JobSubmission,
        reference=OffloadedSubmission,
        headers=(
            Header(IDEMPOTENCY_HEADER, "Requests with the same key start one job. The key may be in the body instead."),
        ),
        problems=(409, 413, 415, 424, 503, 504),
        doc="The job is durable when the reply comes. Upload its artefacts first, as BLOBs below its id. A body of "
        "more than 16 MiB must be off-loaded: upload it as a transient BLOB of the same job and send its name. 424: "
        "the JobManager lacks a BLOB, for example after a change of leader. Announce the group again, upload what "
        "is missing, and submit again with the same job id and key. 504: nobody knows whether the job was created; "
        "submit again with the same key.",
    ),
)
