"""What a driver tells Spark and the JobMaster about its job: the task manager's record, and what this node has."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

from emberkeep.api.job import Job, job_environment
from emberkeep.autoscale.settings import autoscale_settings
from emberkeep.base.configuration.options.jobs import EVENT_LOG_ENABLED
from emberkeep.base.configuration.options.local_state import LOCAL_RECOVERY
from emberkeep.base.configuration.options.savepoints import STOP_FUNCTION_TIMEOUT, STOP_SAVEPOINT_TIMEOUT
from emberkeep.base.configuration.options.security import ENCRYPTION, SPARK_AUTHENTICATE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.ids import JobId
from emberkeep.daemons.driver.event_log import prepared_event_log
from emberkeep.daemons.driver.gateway import serve_own_gateway
from emberkeep.daemons.driver.lineage import lineage_parent
from emberkeep.daemons.driver.program import DriverProgram
from emberkeep.daemons.driver.spark.view import dynamic_allocation
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobmaster.ports import Application
from emberkeep.jobs.model import ArtefactRole
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.model import ResourceProfile, RuntimeVersions, SlotRequirement
from emberkeep.spark import model as spark_model
from emberkeep.spark.distribution import spark_version
from emberkeep.spark.java import find_java
from emberkeep.spark.jvm.class_archive import default_directory, find_class_archive
from emberkeep.spark.jvm.state_gateway_conf import GATEWAY_VARIABLE

log = structlog.get_logger(__name__)


class JobSettings:
    """The settings of one attempt. ``ui_key``: to the Spark UI."""

    def __init__(self, spec: DriverSpec, configuration: Configuration, ui_key: bytes) -> None:
        self._spec = spec
        self._configuration = configuration
        self._ui_key = ui_key

    def environment(self) -> Mapping[str, str]:
        """Return the variables that name the job, for the driver and its executors."""
        graph = self._spec.graph
        return job_environment(Job(job_id=graph.job_id, attempt=self._spec.attempt, name=graph.name))

    def _files(self, *roles: ArtefactRole) -> dict[str, Path]:
        return {file.name: Path(file.path) for file in self._spec.files if file.role in roles}

    def of_spark(self, import_folders: tuple[str, ...]) -> spark_model.DriverSettings:
        """Return the settings of the SparkContext. Prepare the event log, and start the driver's own state gateway."""
        graph = self._spec.graph
        java = find_java(os.environ)
        return spark_model.DriverSettings(
            host=self._spec.host,
            bind_host=self._spec.bind_host,
            spark_conf=graph.spark_conf,
            scratch_dir=Path(self._spec.directory) / "scratch",
            checkpoint_root=self._spec.checkpoint_root,
            secret=secrets.token_urlsafe(32) if self._configuration[SPARK_AUTHENTICATE] else None,
            encrypts=self._configuration[ENCRYPTION] == "tls",
            tls=self._spec.tls,
            java=java,
            app_name=graph.name,
            driver_memory_mb=graph.resources.driver_memory_mb,
            job_files=spark_model.JobFiles(
                py_files=self._files(ArtefactRole.PY_FILE),
                files=self._files(ArtefactRole.FILE, ArtefactRole.ARCHIVE),
                jars=tuple(self._files(ArtefactRole.JAR).values()),
                import_folders=import_folders,
            ),
            committed={checkpoint.location: checkpoint.batch_id for checkpoint in self._spec.checkpoints},
            class_archive=find_class_archive(java, default_directory(os.environ), os.environ),
            gateway_job=self._gateway_job(),
            job_id=graph.job_id,
            savepoint=graph.savepoint,
            asked_before=None if self._spec.procedure is None else self._spec.procedure.procedure,
            function_seconds=self._configuration[STOP_FUNCTION_TIMEOUT],
            step_seconds=self._configuration[STOP_SAVEPOINT_TIMEOUT],
            lineage=lineage_parent(self._spec, self._configuration),
            event_log=prepared_event_log(self._spec) if self._configuration[EVENT_LOG_ENABLED] else None,
            ui_key=self._ui_key,
            resources_file=self._spec.resources_file,
        )

    def _gateway_job(self) -> JobId | None:
        """Start the driver's own state gateway and return the job; None if the job uses no state gateways."""
        if not self._configuration[LOCAL_RECOVERY]:
            return None
        if GATEWAY_VARIABLE not in os.environ:
            log.warning("local recovery is on for the job but not for this task manager", option=LOCAL_RECOVERY.key)
            return None
        serve_own_gateway(self._spec)
        return self._spec.graph.job_id

    def application(self, application: spark_model.SparkApplication, program: DriverProgram) -> Application:
        """Return what the JobMaster must know of a SparkContext of the script: which slots it needs, for example."""
        profile = ResourceProfile(
            cores=application.executor_cores,
            memory_mb=application.executor_heap_mb + application.executor_overhead_mb,
            custom=amounts(application.executor_resources),
        )
        runtime = RuntimeVersions(python=f"{sys.version_info.major}.{sys.version_info.minor}", spark=spark_version())
        wanted = application.executor_instances or self._spec.graph.resources.executors
        dynamic = dynamic_allocation(application.dynamic, autoscale_settings(self._configuration, wanted))
        if application.dynamic is not None:
            wanted = application.dynamic.initial
        elif dynamic is not None:
            wanted = max(dynamic.minimum, min(wanted, dynamic.maximum or wanted))
        return Application(
            app_id=application.app_id,
            driver_url=application.driver_url,
            requirement=SlotRequirement(count=wanted, profile=profile, runtime=runtime),
            heap_mb=application.executor_heap_mb,
            java_options=application.executor_java_options,
            extra_class_path=application.extra_class_path,
            environ={**application.executor_env, **self.environment()},
            auth_secret=application.auth_secret or "",
            python_path=program.folders,
            python_path_owner=program.owner,
            artefacts=tuple(a for a in self._spec.graph.artefacts if a.role is not ArtefactRole.SCRIPT),
            python=application.python,
            jars_first=application.user_class_path_first,
            decommissions=application.decommissions,
            dynamic=dynamic,
            secrets=self._spec.graph.secrets,
            namespace_claim=self._spec.namespace_claim,
        )
