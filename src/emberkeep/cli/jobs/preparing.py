"""From the options of a command to an accepted job: check, upload, submit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from emberkeep.base.redaction import redacted, redacted_arguments
from emberkeep.cli.cluster_options import ClusterOptions, with_client
from emberkeep.cli.jobs.submit_options import JobOptions, SubmitOptions
from emberkeep.cli.messages import say

if TYPE_CHECKING:
    from emberkeep.base.ids import JobId
    from emberkeep.client.endpoint import Endpoint
    from emberkeep.client.rest_client import RestClient
    from emberkeep.client.submission.preparation import PreparedJob


def prepare_job(
    words: tuple[str, ...], job: JobOptions, spark: SubmitOptions, cluster: ClusterOptions, *, quiet: bool
) -> PreparedJob:
    """Prepare the job and check all that can be checked on this machine. Raises InvalidInput."""
    from emberkeep.base.configuration.options.blobs import OFFLOAD_MIN_SIZE
    from emberkeep.client.calls.savepoints import savepoint_location
    from emberkeep.client.submission.job_options import job_options
    from emberkeep.client.submission.preparation import Program, prepare

    script, arguments = (None, words) if job.module is not None else (words[0] if words else None, words[1:])
    prepared = prepare(
        Program(script, job.module, arguments),
        spark.options(),
        job_options(cluster.definitions),
        os.environ,
        offload_min_size=cluster.load()[OFFLOAD_MIN_SIZE],
        savepoint="" if job.from_savepoint is None else savepoint_location(job.from_savepoint),
        namespace=job.namespace,
        secrets=job.secret,
    )
    if not quiet:
        for notice in prepared.notices:
            say(notice)
    if spark.verbose:
        _show(prepared)
    return prepared


def send_job(prepared: PreparedJob, endpoint: Endpoint, *, quiet: bool) -> JobId:
    """Upload what the cluster does not have, submit the job, and return its id.

    After Ctrl-C, say so if the cluster may have accepted the job.
    """
    from emberkeep.cli.jobs.upload_display import UploadDisplay
    from emberkeep.cli.wording import SHORT_ID
    from emberkeep.client.submission.job_submission import JobSubmitting

    def notice(text: str) -> None:
        if not quiet:
            say(text)

    submitting: list[JobSubmitting] = []

    async def send(client: RestClient) -> JobId:
        submitting.append(JobSubmitting(client, prepared, UploadDisplay(say, quiet=quiet), notice))
        return await submitting[0].run()

    try:
        return with_client(endpoint, send)
    except KeyboardInterrupt:
        if any(each.posted for each in submitting):
            say(f"the job may have been accepted: see `emberkeep info {prepared.submission.jobid[:SHORT_ID]}`")
        raise


def _show(job: PreparedJob) -> None:
    submission = job.submission
    entry = submission.entry_point
    resources = submission.resources
    say(f"{entry.kind.value} {entry.source_path or entry.name}, arguments {redacted_arguments(submission.arguments)}")
    for artefact in submission.artefacts:
        alias = f"#{artefact.fragment}" if artefact.fragment else ""
        say(f"{artefact.role.value} {artefact.name}{alias} ({artefact.size} bytes, SHA-256 {artefact.sha256})")
    for name in submission.secrets:
        say(f"secret {name}")
    for key, value in sorted(redacted(submission.spark_conf).items()):
        say(f"{key}={value}")
    say(
        f"driver: {resources.driver_memory_mb} MiB and {resources.driver_overhead_mb} MiB overhead; "
        f"{resources.executors} executors: {resources.executor_cores} cores, {resources.executor_memory_mb} MiB and "
        f"{resources.executor_overhead_mb} MiB overhead each"
    )
