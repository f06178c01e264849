"""Builds the StoredJob that a job store returns, even if the job's graph or attempt cannot be read."""

from __future__ import annotations

from collections.abc import Callable

from emberkeep.adapters.job_store.records import StoredAttempt
from emberkeep.base.errors import EmberkeepError, Fatal, NewerFormat, Unavailable
from emberkeep.base.ids import JobId
from emberkeep.jobs.checkpoints import JobPointers
from emberkeep.jobs.model import JobGraph
from emberkeep.jobs.ports import StoredJob, Trouble


def stored_job(
    job_id: JobId,
    read_attempt: Callable[[], StoredAttempt],
    read_graph: Callable[[], JobGraph],
    *,
    key: str = "",
    pointers: JobPointers = JobPointers(),  # noqa: B008 - frozen
) -> StoredJob:
    """Read attempt and graph, and return the job. Fatal and Unavailable become the job's ``trouble``.

    ``key``: the job's idempotency key, if known. Raises NewerFormat: a release that cannot read the records of a newer
    one must not decide about any job.
    """
    newest, graph, errors = StoredAttempt(attempt=0), None, list[EmberkeepError]()
    try:
        newest = read_attempt()
    except NewerFormat:
        raise
    except (Fatal, Unavailable) as error:
        errors.append(error)
    try:
        graph = read_graph()
    except NewerFormat:
        raise
    except (Fatal, Unavailable) as error:
        errors.append(error)
    # Without the attempt number a graph must not be started either: an old attempt could still be running.
    return StoredJob(
        job_id=job_id,
        attempt=newest.attempt,
        graph=None if errors else graph,
        canceled=newest.canceled,
        trouble=_worst(errors),
        problem="; ".join(str(error) for error in errors),
        idempotency_key=key if errors else "",
        home=newest.home,
        pointers=pointers,
        procedure=newest.open_procedure,
        stopped=newest.stopped,
        over=newest.over,
    )


def _worst(errors: list[EmberkeepError]) -> Trouble | None:
    if not errors:
        return None
    return Trouble.AWAY if all(isinstance(error, Unavailable) for error in errors) else Trouble.DAMAGED
