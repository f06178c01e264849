"""The operator: a task that runs a PySpark script as a job of an Emberkeep cluster."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from airflow.sdk import NEVER_EXPIRE, BaseOperator, BaseOperatorLink, Context
from airflow.sdk import conf as airflow_conf
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout
from airflow.sdk.execution_time.xcom import XCom
from airflow.sdk.log import mask_secret

from emberkeep.base.configuration.options.blobs import OFFLOAD_MIN_SIZE
from emberkeep.base.errors import EmberkeepError, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.client.calls.savepoints import savepoint_location
from emberkeep.client.declarations.declaration import Declaration, Value, prepared_job
from emberkeep.client.submission.preparation import PreparedJob
from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from emberkeep_airflow.connection import ClusterAccess
from emberkeep_airflow.hook import DEFAULT_CONNECTION, EmberkeepHook
from emberkeep_airflow.job_run import call, cancelled, chosen, followed, submitted
from emberkeep_airflow.task_jobs import Start, TaskIdentity, due, reported
from emberkeep_airflow.task_log import TaskLog
from emberkeep_airflow.triggers import EmberkeepJobTrigger

UNREPORTED = "emberkeep_job_id"  # in the task's state store: the job whose result Airflow may not have yet
_KILL_SECONDS = 4.0  # Airflow sends SIGKILL 5 s after SIGTERM


class EmberkeepJobLink(BaseOperatorLink):
    """The job's page in the console, from the moment that the job is submitted."""

    name = "Emberkeep job"
    xcom_key = "console_url"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        return XCom.get_value(ti_key=ti_key, key=self.xcom_key) or ""


class EmberkeepSubmitOperator(BaseOperator):
    """Run a PySpark script on an Emberkeep cluster, and wait for its end.

    The parameters that describe the job are the fields of a declared job's file. Relative paths begin at the folder of
    the DAG's file. All of them are templates.

    A task instance has at most one live job, whatever happens to Airflow: see `emberkeep_airflow.task_jobs`.

    The result (XCom ``return_value``) has ``job_id``, ``state``, ``exit_code``, ``savepoint`` ("" if the job was not
    stopped with one) and ``console_url``. ``job_id`` and ``console_url`` are XComs of their own from the start.

    :param script: the PySpark script; or ``module``, a module as for ``python -m``
    :param arguments: arguments of the script
    :param name: name of the job; by default that of the DAG and the task
    :param conf: Spark properties, such as ``{"spark.executor.memory": "2g"}``
    :param options: Emberkeep's settings of a job, such as ``{"restart-strategy.type": "none"}``
    :param py_files: paths of files for the Python path; ``files``, ``archives`` and ``jars`` likewise
    :param secrets: environment variables with secret values for the job; templates that are not shown in the UI
    :param namespace: namespace of the job; by default the connection's
    :param from_savepoint: location of the savepoint to start from
    :param python: Python version of the cluster's nodes, "3.11"; by default the worker's
    :param wait: False: succeed as soon as the cluster has accepted the job
    :param deferrable: wait in the triggerer, without a worker
    :param poll_interval: seconds between two looks of the triggerer
    :param cancel_on_kill: cancel the job if the task is killed, cleared or marked while it runs
    """

    template_fields = (
        *("emberkeep_conn_id", "script", "module", "arguments", "name", "conf", "options"),
        *("py_files", "files", "archives", "jars", "namespace", "from_savepoint", "python"),
    )
    template_fields_renderers: ClassVar = {"conf": "json", "options": "json"}
    operator_extra_links = (EmberkeepJobLink(),)
    ui_color = "#f4dcc9"

    def __init__(
        self,
        *,
        script: str = "",
        module: str = "",
        arguments: Sequence[object] = (),
        name: str = "",
        conf: Mapping[str, Value] | None = None,
        options: Mapping[str, Value] | None = None,
        py_files: Sequence[str] = (),
        files: Sequence[str] = (),
        archives: Sequence[str] = (),
        jars: Sequence[str] = (),
        secrets: Mapping[str, str] | None = None,
        namespace: str = "",
        from_savepoint: str = "",
        python: str = "",
        wait: bool = True,
        deferrable: bool = airflow_conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float = 10.0,
        cancel_on_kill: bool = True,
        emberkeep_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.script = script
        self.module = module
        self.arguments = arguments
        self.name = name
        self.conf = conf
        self.options = options
        self.py_files = py_files
        self.files = files
        self.archives = archives
        self.jars = jars
        self.secrets = secrets
        self.namespace = namespace
        self.from_savepoint = from_savepoint
        self.python = python
        self.wait = wait
        self.deferrable = deferrable
        self.poll_interval = poll_interval
        self.cancel_on_kill = cancel_on_kill
        self.emberkeep_conn_id = emberkeep_conn_id
        self._running: tuple[ClusterAccess, JobId] | None = None
        self._killed = False

    # --- the steps of a try -----------------------------------------------------------------------------------------

    def execute(self, context: Context) -> dict[str, Any]:
        with self._as_airflow_errors():
            begun = time.time()
            access = EmberkeepHook(self.emberkeep_conn_id).access
            job_id = self._found_or_submitted(access, context)
            if not self.wait:
                return self._reported(access, self._job(access, job_id), context)
            if self.deferrable and not self._job(access, job_id).state.is_globally_terminal:
                limit = self.execution_timeout
                self.defer(
                    trigger=EmberkeepJobTrigger(
                        self.emberkeep_conn_id,
                        job_id,
                        self.poll_interval,
                        None if limit is None else begun + limit.total_seconds(),
                        self.cancel_on_kill,
                    ),
                    method_name="execute_complete",
                )
            return self._followed(access, job_id, context, newest_only=False)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Continue after the trigger has fired: write the log of the job's newest attempt, and report the result."""
        with self._as_airflow_errors():
            access, job_id = EmberkeepHook(self.emberkeep_conn_id).access, JobId(event["job_id"])
            self._running = access, job_id
            if event.get("timed_out"):
                self.on_kill()
                raise AirflowTaskTimeout(f"the execution_timeout of the task has passed before the end of job {job_id}")
            if "problem" in event:
                raise AirflowException(f"cannot watch job {job_id}: {event['problem']}")
            return self._followed(access, job_id, context, newest_only=True)

    def on_kill(self) -> None:
        """Cancel the job. Airflow calls this in a signal handler, and ends the process a few seconds later."""
        self._killed = True
        if self._running is None or not self.cancel_on_kill:
            return
        # An event loop may be running in this thread, so a thread of its own has the call's loop.
        thread = threading.Thread(target=self._cancel, args=self._running, name="cancel-job", daemon=True)
        thread.start()
        thread.join(_KILL_SECONDS)

    # --- its parts --------------------------------------------------------------------------------------------------

    def _found_or_submitted(self, access: ClusterAccess, context: Context) -> JobId:
        """Return the job that this try follows.

        The job's id is stored before the job is submitted: once the job exists, every later try knows that its result
        is due.
        """
        log, task = self._task_log(access, ""), _identity(context, access)
        unreported = due(str(context["task_state_store"].get(UNREPORTED) or ""), self._period(context))
        choice = call(access.endpoint, lambda client: chosen(client, task, unreported, log.notice))
        if isinstance(choice, Start):
            job_id = task.job_id(choice.number)
            self._submit(access, job_id, task.idempotency_key(choice.number), context)
        else:
            job_id = choice.job_id
            self._remember(access, job_id, context)
            self.log.info("taking over job %s, which an earlier try of this task has started", job_id)
        if self._was_killed() and self.cancel_on_kill:  # when the signal arrived, it was not known, or did not exist
            self._cancel(access, job_id)
            raise AirflowException(f"job {job_id} is being cancelled, because its task was killed")
        return job_id

    def _submit(self, access: ClusterAccess, job_id: JobId, key: str, context: Context) -> None:
        log = self._task_log(access, job_id)
        job = self._prepared(access, job_id, key, context)
        for notice in job.notices:
            log.notice(notice)
        self._remember(access, job_id, context)
        if self._was_killed():
            raise AirflowException("the task was killed before its job was submitted")
        call(access.endpoint, lambda client: submitted(client, job, log))
        self.log.info("job %s: %s", job_id, access.job_page(job_id))

    def _remember(self, access: ClusterAccess, job_id: JobId, context: Context) -> None:
        """Store that the job's result is due, and show users where the job is."""
        context["task_state_store"].set(UNREPORTED, job_id, retention=NEVER_EXPIRE)
        context["ti"].xcom_push(key="job_id", value=job_id)
        context["ti"].xcom_push(key=EmberkeepJobLink().xcom_key, value=access.job_page(job_id))
        self._running = access, job_id

    def _prepared(self, access: ClusterAccess, job_id: JobId, key: str, context: Context) -> PreparedJob:
        if bool(self.script) == bool(self.module):
            raise InvalidInput("give either script or module", field="script")
        secrets = self._rendered_secrets(context)
        for value in secrets.values():
            mask_secret(value)
        declaration = Declaration(
            version=1,
            name=self.name or _default_name(context),
            script=self.script,
            module=self.module,
            arguments=[str(word) for word in self.arguments],
            namespace=self.namespace or access.namespace,
            conf=dict(self.conf or {}),
            options=dict(self.options or {}),
            py_files=list(self.py_files),
            files=list(self.files),
            archives=list(self.archives),
            jars=list(self.jars),
            secrets=list(secrets),
        )
        directory = Path(context["dag"].fileloc).absolute().parent
        job = prepared_job(declaration, directory, {**os.environ, **secrets}, offload_min_size=OFFLOAD_MIN_SIZE.default)
        submission = msgspec.structs.replace(
            job.submission,
            jobid=job_id,
            idempotency_key=key,
            savepoint=savepoint_location(self.from_savepoint) if self.from_savepoint else "",
            python=self.python or job.submission.python,
        )
        return dataclasses.replace(job, submission=submission)

    def _rendered_secrets(self, context: Context) -> dict[str, str]:
        """Return the secrets as text, also if the DAG makes Python objects of templates: a password may be digits."""
        dag = self.get_dag()
        templates = self.get_template_env() if dag is None else dag.get_template_env(force_sandboxed=True)
        given: Mapping[str, Any] = self.secrets or {}  # a value may be another task's result
        rendered = {
            name: templates.from_string(value).render(context)
            if isinstance(value, str)
            else self.render_template(value, context)
            for name, value in given.items()
        }
        for name, value in rendered.items():
            if not isinstance(value, str):
                raise InvalidInput(f"the secret {name} is not text", field="secrets")
        return rendered

    def _followed(self, access: ClusterAccess, job_id: JobId, context: Context, *, newest_only: bool) -> dict[str, Any]:
        log = self._task_log(access, job_id)
        job = call(access.endpoint, lambda client: followed(client, job_id, log, newest_only=newest_only))
        return self._reported(access, job, context)

    def _reported(self, access: ClusterAccess, job: JobDetailsInfo, context: Context) -> dict[str, Any]:
        """Return the job's result, or raise for a job that has not succeeded. A cleared task does not take it again."""
        context["task_state_store"].set(UNREPORTED, reported(job.jid, self._period(context)))
        page = access.job_page(job.jid)
        if job.state is JobStatus.CANCELED and self._was_killed():  # also by the end of a worker, which is no decision
            raise AirflowException(f"job {job.jid} was cancelled, because its task was killed: {page}")
        if job.state is JobStatus.CANCELED:
            raise AirflowFailException(f"job {job.jid} was cancelled, so it is not tried again: {page}")
        if job.state is JobStatus.FAILED:
            raise AirflowException(f"job {job.jid} has failed: {job.emberkeep.root_cause or 'no cause known'}: {page}")
        procedure = job.emberkeep.procedure
        return {
            "job_id": job.jid,
            "state": job.state.value,
            "exit_code": job.emberkeep.exit_code,
            "savepoint": "" if procedure is None or not job.state.is_globally_terminal else procedure.location,
            "console_url": page,
        }

    def _period(self, context: Context) -> int:
        """Return how many tries the task had when it was cleared last; 0 if it was never cleared."""
        return int(context["ti"].max_tries) - int(self.retries)

    def _job(self, access: ClusterAccess, job_id: JobId) -> JobDetailsInfo:
        return call(access.endpoint, lambda client: client.job(job_id))

    def _cancel(self, access: ClusterAccess, job_id: JobId) -> None:
        try:
            if call(access.endpoint, lambda client: cancelled(client, job_id), patience=_KILL_SECONDS):
                self.log.info("job %s is being cancelled, because its task was killed", job_id)
        except EmberkeepError as error:
            self.log.error("cannot cancel job %s, which may continue to run: %s", job_id, error)

    def _was_killed(self) -> bool:
        """True once ``on_kill`` has been called, which may interrupt any line."""
        return self._killed

    def _task_log(self, access: ClusterAccess, job_id: str) -> TaskLog:
        return TaskLog(self.log, access.job_page(job_id))

    @contextmanager
    def _as_airflow_errors(self) -> Iterator[None]:
        """Raise Emberkeep's errors as Airflow's, with what to do about them."""
        try:
            yield
        except RetryLater as error:
            raise AirflowException(f"{error}; a job that runs continues, and a retry takes it over") from error
        except EmberkeepError as error:
            raise AirflowException(str(error)) from error


def _identity(context: Context, access: ClusterAccess) -> TaskIdentity:
    instance = context["ti"]
    index = instance.map_index
    return TaskIdentity(
        instance.dag_id, instance.run_id, instance.task_id, -1 if index is None else index, access.deployment
    )


def _default_name(context: Context) -> str:
    instance = context["ti"]
    mapped = "" if instance.map_index in (None, -1) else f"[{instance.map_index}]"
    return f"{instance.dag_id}.{instance.task_id}{mapped}"[:256]
