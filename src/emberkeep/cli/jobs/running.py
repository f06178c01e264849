"""Run or submit a prepared job: on the cluster that the options name, or on one that is started for this run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from emberkeep.cli.cluster_options import ClusterOptions
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say

if TYPE_CHECKING:
    from emberkeep.client.submission.preparation import PreparedJob

    Prepare = Callable[[], PreparedJob]


def run_job(prepare: Prepare, cluster: ClusterOptions, *, keep_logs: bool, quiet: bool) -> int:
    """Run the job to its end: show its output and progress, return its exit code."""
    from emberkeep.client.submission.job_options import refuse_cluster_options, without_client_keys

    prepared = prepare()
    endpoint = cluster.find()
    from emberkeep.cli.jobs.run import run_embedded, run_on_cluster

    if endpoint is not None:
        refuse_cluster_options(cluster.definitions)
        tell_no_logs_to_keep(keep_logs=keep_logs, quiet=quiet)
        return asyncio.run(run_on_cluster(prepared, endpoint, quiet=quiet))
    from emberkeep.base.configuration.options.jobs import CANCELLATION_TIMEOUT
    from emberkeep.client.clusters.cluster_end import STOP_MARGIN
    from emberkeep.client.clusters.embedded import EmbeddedOptions
    from emberkeep.client.clusters.private_storage import PrivateStorage

    options = EmbeddedOptions(
        parent=cluster.layout().root / "runs",
        config_file=cluster.effective_config_file(),
        definitions=without_client_keys(cluster.definitions),
        stop_timeout=cluster.load()[CANCELLATION_TIMEOUT] + STOP_MARGIN,
        storage=PrivateStorage(cluster.load()),
    )
    return asyncio.run(run_embedded(prepared, options, quiet=quiet, keep_logs=keep_logs))


def tell_no_logs_to_keep(*, keep_logs: bool, quiet: bool) -> None:
    """Say that ``--keep-logs`` does nothing for a job of a cluster."""
    if keep_logs and not quiet:
        say("--keep-logs has no effect: the cluster keeps the logs of its jobs")


def submit_job(prepare: Prepare, cluster: ClusterOptions, *, quiet: bool) -> int:
    """Submit the job to a cluster and print its id."""
    from emberkeep.cli.jobs.preparing import send_job
    from emberkeep.client.submission.job_options import refuse_cluster_options

    refuse_cluster_options(cluster.definitions)
    endpoint = cluster.require()
    prepared = prepare()
    job_id = send_job(prepared, endpoint, quiet=quiet)
    print_line(job_id)
    if not quiet:
        name = prepared.submission.name
        say(f"{name} was accepted by {endpoint.url}; follow it with `emberkeep logs -f {job_id[:8]}`")
    return ExitCode.OK
