"""``apply``, ``diff`` and ``get``: jobs that a file declares."""

from __future__ import annotations

import os
import sys
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from emberkeep.cli.cluster_options import DEFAULT_CLUSTER, ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode
from emberkeep.cli.messages import print_line, say
from emberkeep.cli.parameters import FromSavepoint, Job, JobSwitch, PlainOutput
from emberkeep.cli.tables import OutputFormat, print_data

if TYPE_CHECKING:
    from emberkeep.cli.views.asked import Asked
    from emberkeep.client.declarations.apply import Applying
    from emberkeep.client.declarations.declaration import DeclaredJob, Wanted
    from emberkeep.client.declarations.plan import Plan
    from emberkeep.client.rest_client import RestClient
    from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo

# `-f FILE` is how kubectl's commands of these names are called.
_FILE = Parameter(name=["--file", "-f"], metavar="FILE", help="YAML file that declares the job.")


def apply(
    file: Annotated[str | None, _FILE] = None,
    *,
    dry_run: JobSwitch = False,
    again: JobSwitch = False,
    from_savepoint: FromSavepoint = None,
    schema: bool = False,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Make the cluster run a job as a file declares it. Print the job's id.

    A job that runs as declared is left as it is.
    If the file has changed, the running job is upgraded (see `emberkeep upgrade`):
    it is stopped with a savepoint, and the changed job starts from there.
    If the changed job is not good, the job runs again as it was, and the exit code is 1.

    Parameters
    ----------
    dry_run
        Show what would be done, and do nothing.
    again
        If the job has ended, start it again, without a savepoint.
    schema
        Print the JSON Schema of the file instead.
    """
    if schema:
        folder = resources.files("emberkeep.client.declarations")
        sys.stdout.write(folder.joinpath("job.schema.json").read_text(encoding="utf-8"))
        return ExitCode.OK
    from emberkeep.base.errors import InvalidInput
    from emberkeep.cli.views.asked import with_client_asking
    from emberkeep.client.calls.savepoints import savepoint_location
    from emberkeep.client.declarations.apply import Applying
    from emberkeep.client.declarations.plan import Choice

    if file is None:
        raise InvalidInput("FILE is missing: the file that declares the job", field="FILE", hint="emberkeep apply FILE")

    choice = Choice("" if from_savepoint is None else savepoint_location(from_savepoint), again)
    endpoint = cluster.require()
    wanted = _wanted(file, cluster)

    async def work(client: RestClient, asked: Asked) -> str:
        applying = Applying(client, wanted, choice)
        plan = await applying.plan()
        _show(plan)
        if dry_run:
            say("nothing was done: --dry-run")
            return ""
        return await _carry_out(applying, plan, asked, endpoint.url)

    job_id = with_client_asking(endpoint, work)
    if job_id:
        print_line(job_id)
    return ExitCode.OK


async def _carry_out(applying: Applying, plan: Plan, asked: Asked, url: str) -> str:
    """Carry out a plan and show its steps. Return the job's id. ``url``: of the JobManager that is asked."""
    from emberkeep.cli.jobs.stop import ProcedureDisplay
    from emberkeep.cli.jobs.upgrade_display import UpgradeDisplay, continues
    from emberkeep.cli.jobs.upload_display import UploadDisplay
    from emberkeep.client.declarations.apply import ApplyDisplay
    from emberkeep.client.declarations.plan import Step

    upgrades = UpgradeDisplay(say)

    def upgrading(state: UpgradeInfo) -> None:
        asked.text = continues(state)
        upgrades.show(state)

    display = ApplyDisplay(say, ProcedureDisplay().show, UploadDisplay(say, quiet=False), upgrading)
    if plan.step is not Step.NOTHING:
        asked.text = "what the plan says may be done: `emberkeep diff` shows what is left to do"
    job_id = await applying.carry_out(plan, display)
    if plan.step is not Step.NOTHING:
        say(f"job {job_id[:8]} was accepted by {url}; follow it with `emberkeep logs -f {job_id[:8]}`")
    return job_id


def diff(
    file: Annotated[str, _FILE],
    *,
    output: PlainOutput = OutputFormat.TABLE,
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Show what `emberkeep apply` would change. The exit code is 0 if nothing, and 1 if something would change."""
    from emberkeep.client.declarations.apply import Applying
    from emberkeep.client.declarations.plan import Choice, Step

    endpoint = cluster.require()
    wanted = _wanted(file, cluster)

    async def read(client: RestClient) -> Plan:
        return await Applying(client, wanted, Choice()).plan()

    plan = with_client(endpoint, read)
    if output.is_data:
        print_data(_plan_data(plan), output)
    else:
        _show(plan)
    return ExitCode.OK if plan.step is Step.NOTHING else ExitCode.FAILED


def get(
    job: Job,
    /,
    *,
    output: Annotated[
        Literal["yaml", "json"],
        Parameter(name=["--output", "-o"], metavar="yaml|json", help="Output format. YAML says where paths begin."),
    ] = "yaml",
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> int:
    """Print the declaration of a job, which `emberkeep apply` takes."""
    from emberkeep.base.errors import Absent
    from emberkeep.client.declarations.declaration import record_in
    from emberkeep.client.job_reference import resolve_job

    async def read(client: RestClient) -> DeclaredJob:
        job_id = await resolve_job(client, job)
        config = (await client.config(job_id)).emberkeep
        if config is None:
            raise Absent(f"job {job_id[:8]} has ended, and this JobManager no longer knows how it was declared")
        record = record_in(config.spark_conf)
        if record is None:
            raise Absent(
                f"job {job_id[:8]} was not declared by a file", hint=f"`emberkeep info {job_id[:8]} -o yaml` shows it"
            )
        return record

    record = with_client(cluster.require(), read)
    if output == "yaml":
        print_line(f"# Paths begin at {record.directory}")
    print_data(record.declaration, OutputFormat(output))
    return ExitCode.OK


def _wanted(file: str, cluster: ClusterOptions) -> Wanted:
    from emberkeep.base.configuration.options.blobs import OFFLOAD_MIN_SIZE
    from emberkeep.client.declarations.declaration import wanted_job

    wanted = wanted_job(Path(file), os.environ, offload_min_size=cluster.load()[OFFLOAD_MIN_SIZE])
    for notice in wanted.job.notices:
        say(notice)
    return wanted


def _show(plan: Plan) -> None:
    say(f"{plan.step.value}: {plan.reason}")
    for change in plan.changes:
        say(f"  {change}")


def _plan_data(plan: Plan) -> dict[str, Any]:
    """Return the plan for programs. A change without ``before`` adds a field, one without ``after`` removes it."""
    return {
        "step": plan.step.value.replace(" ", "-"),
        "job-id": plan.job_id,
        "reason": plan.reason,
        "savepoint": plan.savepoint,
        "changes": plan.changes,
    }
