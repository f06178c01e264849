"""Make the SparkContexts that the user's code creates run on the cluster.

The hook is where PySpark creates the JVM's context (`SparkContext._do_init`), so that it sees everything that the code
has set by then, including static configuration.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.executors import cordon, scheduler_control
from emberkeep.spark.executors.allocation import dynamic_allocation
from emberkeep.spark.executors.encrypted_spills import encrypt_spills
from emberkeep.spark.files.job_files import attach
from emberkeep.spark.jvm.configuration import MergedConfiguration, application, is_true, master_configuration, merge
from emberkeep.spark.jvm.driver_command import PLACEHOLDER_MASTER, JvmPlan, plan_jvm
from emberkeep.spark.jvm.driver_jvm import DriverJvm, replace_launch_gateway, start_jvm
from emberkeep.spark.jvm.embedded_master import EmbeddedMaster
from emberkeep.spark.jvm.link_security import FILE_ENCRYPTION
from emberkeep.spark.jvm.state_gateway_conf import (
    NAMESERVICES,
    TLS_FILE,
    TLS_FILE_DEFAULT,
    TRUSTSTORE,
    HadoopSite,
    gateway_settings,
    placement_settings,
)
from emberkeep.spark.model import ApplicationListener, DriverSettings, SparkApplication
from emberkeep.spark.notices import Notices

TakeJvm = Callable[[JvmPlan, DriverSettings], DriverJvm | None]
"""Gives the driver a JVM that was started before the job, or returns None if no such JVM fits."""


class ContextHook:
    """Owns this process's JVM, embedded Master and current SparkContext.

    Only the script's threads write the fields, while they hold the lock under which PySpark constructs a SparkContext.
    Other threads only read the fields.
    """

    def __init__(
        self, settings: DriverSettings, listener: ApplicationListener, notices: Notices, take_jvm: TakeJvm
    ) -> None:
        self._settings = settings
        self._take_jvm = take_jvm
        self._listener = listener
        self._notices = notices
        self._pid = os.getpid()
        self._master: EmbeddedMaster | None = None
        self._own_masters = {PLACEHOLDER_MASTER}
        self._application: SparkApplication | None = None
        self.jvm: DriverJvm | None = None
        self.context: Any = None

    def install(self) -> None:
        """Patch PySpark in this process. Raises SparkInternalsMissing if a method to patch is missing."""
        from pyspark.core import context as module

        kind: Any = module.SparkContext
        for owner, name in ((kind, "_do_init"), (kind, "stop"), (module, "launch_gateway")):
            if not hasattr(owner, name):
                raise SparkInternalsMissing(
                    f"this PySpark has no {getattr(owner, '__name__', owner)}.{name}",
                    hint="Emberkeep works with PySpark 4.3",
                )
        replace_launch_gateway(self._launch)
        kind._do_init = self._around_init(kind._do_init)
        kind.stop = self._around_stop(kind.stop)

    def _launch(self, conf: Any = None, popen_kwargs: Any = None) -> Any:
        """Start a JVM and return the gateway to it. Replaces `launch_gateway`."""
        del popen_kwargs  # only PySpark's own tests pass them
        plan = plan_jvm(dict(conf.getAll()) if conf is not None else {}, self._settings, os.environ)
        self.jvm = self._take_jvm(plan, self._settings) or start_jvm(plan, self._settings)
        return self.jvm.gateway

    def _around_init(self, original: Any) -> Any:
        parameters = inspect.signature(original)

        @functools.wraps(original)
        def do_init(*positional: Any, **named: Any) -> None:
            given = parameters.bind(*positional, **named).arguments
            if given["jsc"] is None:  # otherwise the caller has created a context inside the JVM
                given["conf"] = self._prepare(given["self"], given["conf"], given["master"])
                given["master"] = None
            original(**given)
            if given["jsc"] is None:
                self._started(given["self"])

        return do_init

    def _around_stop(self, original: Any) -> Any:
        @functools.wraps(original)
        def stop(context: Any) -> None:
            if os.getpid() == self._pid and self.context is context and self._application is not None:
                self._listener.application_stopping(self._application.app_id)
            try:
                original(context)
            finally:
                if os.getpid() == self._pid:
                    self._stopped(context)

        return stop

    def _prepare(self, context: Any, conf: Any, master: str | None) -> Any:
        """Return the configuration for the context: a copy, so that the script's own object stays unchanged."""
        from pyspark.conf import SparkConf

        merged = SparkConf(_jvm=context._jvm)
        present = dict(merged.getAll()) | (dict(conf.getAll()) if conf is not None else {})
        if master is not None:
            present["spark.master"] = master
        if present.get("spark.master") in self._own_masters:
            del present["spark.master"]
            if "spark.master" in self._settings.spark_conf:
                present["spark.master"] = self._settings.spark_conf["spark.master"]
        self._master = EmbeddedMaster(context._jvm, self._master_configuration(present))
        self._own_masters.add(self._master.url)
        decision = merge(present, self._settings, self._master.url)
        gateway = self._gateway_configuration(context._jvm, present)
        for warning in (*decision.warnings, *gateway.warnings):
            self._notices.say(warning)
        for key, value in (present | gateway.values | decision.values).items():
            merged.set(key, value)
        return merged

    def _gateway_configuration(self, jvm: Any, present: Mapping[str, str]) -> MergedConfiguration:
        if self._settings.gateway_job is None:
            return MergedConfiguration({}, ())
        values, warnings = placement_settings(present)
        gateway = gateway_settings(present, _hadoop_site(jvm), encrypts=self._settings.encrypts)
        return MergedConfiguration(values | gateway, warnings)

    def _master_configuration(self, present: Mapping[str, str]) -> dict[str, str]:
        return master_configuration({**present, **merge(present, self._settings, "").values})

    def _started(self, context: Any) -> None:
        scheduler_control.probe(context)
        cordon.probe(context)
        attach(context, self._settings.job_files)
        configuration = dict(context.getConf().getAll())
        port = int(configuration["spark.driver.port"])
        started = application(
            configuration, context.applicationId, port, self._settings, context.sparkUser(), context.pythonExec
        )
        started = dataclasses.replace(started, dynamic=dynamic_allocation(context))
        if is_true(configuration, FILE_ENCRYPTION):
            encrypt_spills()  # of lists that this process receives
        self.context = context
        self._application = started
        self._listener.application_started(started)

    def _stopped(self, context: Any) -> None:
        """Release what belongs to a stopped context; also called when its construction has failed half-way."""
        if self._master is not None and (self.context is None or self.context is context):
            self._master.stop()
            self._master = None
        if self.context is context and self._application is not None:
            stopped, self._application, self.context = self._application, None, None
            self._listener.application_stopped(stopped.app_id)


def _hadoop_site(jvm: Any) -> HadoopSite:
    """Return what Hadoop's files say about HDFS and TLS: settings of the job would hide that."""
    files = jvm.org.apache.hadoop.hdfs.HdfsConfiguration()
    tls = files.getResource(files.get(TLS_FILE, TLS_FILE_DEFAULT))
    return HadoopSite(
        nameservices=files.get(NAMESERVICES) or "",
        tls=TRUSTSTORE if files.get(TRUSTSTORE) else "" if tls is None else tls.toString(),
    )
