"""The `emberkeep-spark-submit` command: options, output and exit codes of Spark's ``spark-submit``.

Tools such as Airflow's SparkSubmitHook run it in place of ``spark-submit``. Everything that Emberkeep does is done by
the functions of ``emberkeep run`` and ``submit``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from emberkeep import __version__
from emberkeep.base.errors import Absent, Conflict
from emberkeep.cli.cluster_options import ClusterOptions, with_client
from emberkeep.cli.exit_codes import ExitCode, called, ended
from emberkeep.cli.jobs.submit_options import DEFAULT_JOB, DEFAULT_SUBMIT, SPARK_GROUP, SubmitOptions, Words
from emberkeep.cli.messages import say
from emberkeep.cli.script_arguments import UNSUPPORTED, normalise
from emberkeep.cli.spark_submit import answers
from emberkeep.cli.spark_submit.modes import DEPLOY_MODE, MASTER, Mode, last_given, mode_of, refuse_shells
from emberkeep.cli.spark_submit.submission_id import job_of, submission_id

if TYPE_CHECKING:
    from emberkeep.base.ids import JobId
    from emberkeep.client.rest_client import RestClient

FLAGS = frozenset(
    {
        *("--help", "-h", "--verbose", "-v", "--version", "--usage-error"),
        *("--supervise", "--load-spark-defaults"),
    }
)
_ENDED = "has already finished or does not exist"


def spark_submit(
    *words: Words,
    status: Annotated[str | None, Parameter(metavar="SUBMISSION_ID", group=SPARK_GROUP)] = None,
    kill: Annotated[str | None, Parameter(metavar="SUBMISSION_ID", group=SPARK_GROUP)] = None,
    version: Annotated[bool, Parameter(group=SPARK_GROUP)] = False,
    usage_error: Annotated[bool, Parameter(show=False)] = False,
    spark: SubmitOptions = DEFAULT_SUBMIT,
) -> int:
    """Run a PySpark script on an Emberkeep cluster, for tools that call spark-submit.

    In deploy mode client, the default, it shows the script's output and returns its exit code.
    In deploy mode cluster it prints a submission id, and returns once the job is accepted.
    The cluster is the one that `emberkeep run` uses, or the address in --master if that is a JobManager's.

    Parameters
    ----------
    status
        Print the state of a submission.
    kill
        Cancel a submission.
    version
        Print the versions of Spark and Emberkeep.
    """
    from emberkeep.client.submission.spark_options import merged_settings

    if version:
        answers.version(_spark_version(), __version__)
        return ExitCode.OK
    if usage_error or not (words or status or kill):
        build_app().help_print([])
        return ExitCode.FAILED
    mode = mode_of(merged_settings(spark.options(), os.environ), os.environ)
    cluster = ClusterOptions(url=mode.url)
    if status is not None:
        return _status(status, cluster)
    if kill is not None:
        return _kill(kill, cluster)
    refuse_shells(words[0])
    given = _without_modes(spark, mode)
    if mode.is_client:
        from emberkeep.cli.jobs.commands import run

        return run(*words, spark=given, cluster=cluster)
    return _submit(words, given, mode, cluster)


def _without_modes(spark: SubmitOptions, mode: Mode) -> SubmitOptions:
    """Return the options without those that are obeyed here, so that nothing calls them ignored."""
    obeyed = (DEPLOY_MODE, MASTER) if mode.url else (DEPLOY_MODE,)
    conf = tuple(pair for pair in spark.conf if pair.partition("=")[0].strip() not in obeyed)
    return dataclasses.replace(spark, conf=conf, deploy_mode=None, master=None if mode.url else spark.master)


def _submit(words: tuple[str, ...], spark: SubmitOptions, mode: Mode, cluster: ClusterOptions) -> int:
    from emberkeep.cli.jobs.preparing import prepare_job, send_job
    from emberkeep.cli.jobs.run import watch_on_cluster

    endpoint = cluster.require()
    answers.log_line(f"Submitting a request to launch an application in {endpoint.url}.")
    job_id = send_job(prepare_job(words, DEFAULT_JOB, spark, cluster, quiet=False), endpoint, quiet=False)
    driver = submission_id(job_id, int(time.time() * 1000))
    answers.log_line(f"Submission successfully created as {driver}. Polling submission state...")
    answers.log_line(f"State of driver {driver} is now SUBMITTED.")
    answers.answer(
        "CreateSubmissionResponse",
        _spark_version(),
        driver,
        success=True,
        message=f"Driver successfully submitted as {driver}",
    )
    say(f"this is job {job_id}; follow it with `emberkeep logs -f {job_id[:8]}`")
    if not mode.waits:
        return ExitCode.OK
    try:
        code = asyncio.run(watch_on_cluster(job_id, endpoint))
    except KeyboardInterrupt:
        say(f"stopped waiting: the job continues; `emberkeep cancel {job_id[:8]}` ends it")
        return ExitCode.INTERRUPTED
    if mode.reports_exit_code:
        say(f"exit code: {code}")
    return code


def _status(submission: str, cluster: ClusterOptions) -> int:
    endpoint = cluster.require()
    answers.log_line(f"Submitting a request for the status of submission {submission} in {endpoint.url}.")
    action, spark = "SubmissionStatusResponse", _spark_version()

    async def read(client: RestClient) -> None:
        job = await client.job(await _job(client, submission))
        fields: dict[str, str | bool] = {"driverState": answers.driver_state(job.state), "success": True}
        if job.emberkeep.driver is not None:
            fields["workerId"] = job.emberkeep.driver.taskmanager_id
        if job.emberkeep.root_cause:
            fields["message"] = job.emberkeep.root_cause
        answers.answer(action, spark, submission, **fields)

    try:
        with_client(endpoint, read)
    except Absent:
        answers.answer(action, spark, submission, success=False)
        raise
    return ExitCode.OK


def _kill(submission: str, cluster: ClusterOptions) -> int:
    endpoint = cluster.require()
    answers.log_line(f"Submitting a request to kill submission {submission} in {endpoint.url}.")
    action, spark = "KillSubmissionResponse", _spark_version()

    async def end(client: RestClient) -> None:
        await client.cancel(await _job(client, submission))

    try:
        with_client(endpoint, end)
    except Conflict:
        answers.answer(action, spark, submission, success=False, message=f"Driver {submission} {_ENDED}")
        return ExitCode.OK
    except Absent:
        answers.answer(action, spark, submission, success=False, message=f"Driver {submission} {_ENDED}")
        raise
    answers.answer(action, spark, submission, success=True, message=f"Kill request for {submission} submitted")
    return ExitCode.OK


async def _job(client: RestClient, submission: str) -> JobId:
    """Return the job of a submission id, or the one that has this id, prefix of an id, or name."""
    from emberkeep.client.job_reference import resolve_job

    return job_of(submission) or await resolve_job(client, submission)


def _spark_version() -> str:
    from importlib.metadata import version as installed

    return installed("pyspark")


def build_app() -> App:
    """Return the command."""
    app = App(
        name="emberkeep-spark-submit",
        usage="Usage: emberkeep-spark-submit [OPTIONS] SCRIPT [ARGUMENTS...]\n"
        "       emberkeep-spark-submit --status|--kill SUBMISSION_ID",
        version_flags=[],
        default_parameter=Parameter(negative=(), show_default=False),
        help_format="plaintext",
        result_action="return_value",
    )
    app.default(spark_submit)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 1 for every error, as spark-submit does, or the script's own."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return ended(lambda: _run(words), lambda _: ExitCode.FAILED)


def _run(words: list[str]) -> int:
    normal = normalise(words, FLAGS, UNSUPPORTED)
    end = normal.index("--")
    return called(build_app(), [*last_given(normal[:end], "--conf"), *normal[end:]], ExitCode.FAILED)
