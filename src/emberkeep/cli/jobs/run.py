"""Submit a job and follow it: output, progress, exit code, Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from emberkeep.base.errors import Conflict, EmberkeepError
from emberkeep.base.ids import JobId
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.interrupts import Interrupts
from emberkeep.cli.jobs.upload_display import UploadDisplay
from emberkeep.cli.terminal import JobTerminal
from emberkeep.cli.wording import SHORT_ID
from emberkeep.client.clusters.embedded import EmbeddedCluster, EmbeddedOptions
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.follow import JobFollower
from emberkeep.client.rest_client import RestClient
from emberkeep.client.submission.job_submission import JobSubmitting
from emberkeep.client.submission.preparation import PreparedJob
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo

_KILL_PATIENCE = 10.0  # seconds within which a killed job must be reported as ended


class Interrupted(Exception):
    """The user ended the command before its result was known."""


async def run_on_cluster(job: PreparedJob, endpoint: Endpoint, *, quiet: bool) -> int:
    """Submit a job to a running cluster, follow it, and return the exit code."""
    interrupts = Interrupts()
    with interrupts.catching():
        try:
            return await _run(job, endpoint, interrupts, JobTerminal(quiet=quiet), _kill_by_request)
        except Interrupted:
            return ExitCode.INTERRUPTED


async def watch_on_cluster(job_id: JobId, endpoint: Endpoint) -> int:
    """Follow a job to its end and return the exit code. A signal ends this command alone: the job continues."""
    terminal = JobTerminal(quiet=False)
    try:
        async with RestClient(endpoint) as client:
            return _exit_code(await JobFollower(client, job_id, terminal).run(), terminal, interrupted=False)
    finally:
        terminal.close()


async def run_embedded(job: PreparedJob, options: EmbeddedOptions, *, quiet: bool, keep_logs: bool) -> int:
    """Start a cluster for this job alone, run the job there, remove the cluster, and return the exit code."""
    interrupts = Interrupts()
    terminal = JobTerminal(quiet=quiet)
    cluster = EmbeddedCluster(options, terminal.always)
    with interrupts.catching():
        try:
            endpoint = await _unless_interrupted(cluster.start(), interrupts)
            return await _while_supervised(cluster, _run(job, endpoint, interrupts, terminal, _kill_by_leaving))
        except Interrupted:
            return ExitCode.INTERRUPTED
        finally:
            terminal.close()
            logs = await asyncio.to_thread(cluster.stop, lambda: interrupts.count > 1, with_logs=keep_logs)
            if logs is not None:
                terminal.always(f"the logs of this run are below {logs}")


async def _while_supervised(cluster: EmbeddedCluster, work: Coroutine[Any, Any, int]) -> int:
    """Return the result of ``work``; until then, restart the cluster's process whenever it ends.

    If the process cannot be restarted, cancel ``work`` and raise the error.
    """
    supervising = asyncio.create_task(cluster.supervise(), name="supervise-embedded-cluster")
    working = asyncio.create_task(work, name="run-job")
    try:
        await asyncio.wait({supervising, working}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            supervising.result()  # raises: supervision ends only with an error
        return working.result()
    finally:
        for task in (supervising, working):
            task.cancel()
        await asyncio.gather(supervising, working, return_exceptions=True)


Kill = Callable[[RestClient, JobId], Coroutine[Any, Any, None]]


async def _run(job: PreparedJob, endpoint: Endpoint, interrupts: Interrupts, terminal: JobTerminal, kill: Kill) -> int:
    try:
        async with RestClient(endpoint) as client:
            display = UploadDisplay(terminal.notice, quiet=terminal.is_quiet)
            job_id = await _submit(JobSubmitting(client, job, display, terminal.notice), job, interrupts, terminal)
            terminal.notice(f"job {job_id} ({job.submission.name}) submitted to {endpoint.url}")
            end = await _follow(client, job_id, interrupts, terminal, kill)
            return _exit_code(end, terminal, interrupted=interrupts.count > 0)
    finally:
        terminal.close()


async def _submit(submitting: JobSubmitting, job: PreparedJob, interrupts: Interrupts, terminal: JobTerminal) -> JobId:
    """Submit the job and return its id.

    Raises Interrupted at the first signal, or at the second once the job was posted: to cancel the job, we must know
    whether the JobManager has accepted it.
    """
    working = asyncio.create_task(submitting.run(), name="submit-job")
    try:
        for count in (1, 2):
            waiting = asyncio.create_task(interrupts.wait_for(count))
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if working.done():
                return working.result()
            if not submitting.posted:
                raise Interrupted
            if count == 1:
                terminal.always("waiting for the JobManager to accept the job; press Ctrl-C again to leave")
        terminal.always(f"the job may have been accepted: see `emberkeep info {job.submission.jobid[:SHORT_ID]}`")
        raise Interrupted
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _follow(
    client: RestClient, job_id: JobId, interrupts: Interrupts, terminal: JobTerminal, kill: Kill
) -> JobDetailsInfo:
    """Follow the job and return its final state.

    Raises Interrupted if the user did not wait for the end, BrokenPipeError if standard output was closed (the job is
    then cancelled), EmberkeepError.
    """
    following = asyncio.create_task(JobFollower(client, job_id, terminal).run(), name="follow-job")
    cancelling = asyncio.create_task(_cancel_when_asked(client, job_id, interrupts, terminal, kill), name="cancel-job")
    try:
        await asyncio.wait({following, cancelling}, return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            cancelling.result()
            raise Interrupted
        return following.result()
    except BrokenPipeError:
        await _cancel(client, job_id)
        terminal.always("standard output was closed: cancelling the job")
        raise
    finally:
        for task in (following, cancelling):
            task.cancel()
        await asyncio.gather(following, cancelling, return_exceptions=True)


async def _cancel_when_asked(
    client: RestClient, job_id: JobId, interrupts: Interrupts, terminal: JobTerminal, kill: Kill
) -> None:
    """Cancel the job at the first signal, kill it at the second. Return when ``kill`` has returned."""
    await interrupts.wait_for(1)
    terminal.always("cancelling the job; press Ctrl-C again to kill it")
    try:
        await _cancel(client, job_id)
    except EmberkeepError as error:
        terminal.always(f"cannot cancel the job now: {error}")
    await interrupts.wait_for(2)
    terminal.always("killing the job")
    await kill(client, job_id)


async def _cancel(client: RestClient, job_id: JobId, grace: float | None = None) -> None:
    try:
        await client.cancel(job_id, grace=grace)
    except Conflict:
        return  # the job has ended on its own


async def _kill_by_request(client: RestClient, job_id: JobId) -> None:
    await _cancel(client, job_id, grace=0.0)
    await asyncio.sleep(_KILL_PATIENCE)


async def _kill_by_leaving(_client: RestClient, _job_id: JobId) -> None:
    """Do nothing: the command ends the embedded cluster, with everything that runs in it."""


async def _unless_interrupted(work: Coroutine[Any, Any, Any], interrupts: Interrupts) -> Any:
    """Return the result of ``work``. Raises Interrupted as soon as a signal arrives."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(interrupts.wait_for(1))
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Interrupted
        return working.result()
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


def _exit_code(job: JobDetailsInfo, terminal: JobTerminal, *, interrupted: bool) -> int:
    own = job.emberkeep
    if job.state is JobStatus.FINISHED:
        terminal.notice(f"job {job.jid[:SHORT_ID]} FINISHED")
        return ExitCode.OK
    if job.state is JobStatus.CANCELED:
        terminal.always(f"job {job.jid[:SHORT_ID]} CANCELED")
        return ExitCode.INTERRUPTED if interrupted else ExitCode.FAILED
    terminal.always(f"job {job.jid[:SHORT_ID]} FAILED: {own.root_cause or 'the cause is unknown'}")
    return own.exit_code or ExitCode.FAILED
