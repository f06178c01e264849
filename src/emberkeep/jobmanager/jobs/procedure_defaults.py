"""Defaults for the values that a request about a job does not set. Pure."""

from __future__ import annotations

import msgspec

from emberkeep.base.configuration.options.savepoints import SAVEPOINT_DIRECTORY, STOP_BATCH_TIMEOUT
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.jobmanager.jobs.admission import job_configuration
from emberkeep.jobs.model import JobGraph
from emberkeep.lifecycle.model import ProcedureRequest


def with_defaults(
    request: ProcedureRequest, cluster: Configuration, graph: JobGraph | None, savepoint_root: str
) -> ProcedureRequest:
    """Return the request with a savepoint directory and a deadline.

    Its own values come first, then those configured for the job or the cluster. ``graph`` is None if it could not be
    read. ``savepoint_root``: the directory if none is configured.
    """
    configuration = cluster
    if graph is not None:
        try:
            configuration = job_configuration(cluster, graph)
        except InvalidInput:  # another release accepted the job with options unknown here
            configuration = cluster
    limit_ms = int(configuration[STOP_BATCH_TIMEOUT] * 1000)
    return msgspec.structs.replace(
        request,
        target_directory=request.target_directory or configuration[SAVEPOINT_DIRECTORY] or savepoint_root,
        deadline_ms=request.deadline_ms or request.requested_ms + limit_ms,
    )
