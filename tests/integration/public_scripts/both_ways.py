"""One script under spark-submit and as a job of a cluster, both at the same time."""

from __future__ import annotations

from pathlib import Path

from tests.integration.clusters import Cluster
from tests.integration.commands import SMALL, Ended, Shell
from tests.integration.public_scripts.scripts import PLACE

ALONE = ("--master", "local[2]", "--conf", "spark.ui.enabled=false", *SMALL)
_SECONDS = 900.0  # several examples one after another, on a busy machine


def run_both_ways(
    cluster: Cluster, plain: Shell, script: Path, *options: str, arguments: tuple[str, ...] = ()
) -> tuple[Ended, Ended]:
    """Return how the script ended under spark-submit, and how the job's last attempt ended."""
    alone = plain.start(*ALONE, *options, str(script), *_placed(arguments, plain))
    job_id = cluster.submit(script, *options, arguments=_placed(arguments, cluster.shell))
    job = cluster.wait_for(job_id, lambda job: job.state.is_globally_terminal, "the script ends", _SECONDS)
    last = job.emberkeep.attempts[-1]
    out, err = (cluster.output(job_id, kind, last.attempt) for kind in ("driver-stdout", "driver-stderr"))
    assert last.exit_code is not None, cluster.story(job_id)
    return alone.wait(_SECONDS), Ended(last.exit_code, out, err)


def _placed(arguments: tuple[str, ...], shell: Shell) -> tuple[str, ...]:
    return tuple(argument.replace(PLACE, str(shell.work)) for argument in arguments)
