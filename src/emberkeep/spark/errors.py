"""Errors at the boundary between Emberkeep and Spark."""

from __future__ import annotations

from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater


class JavaNotFound(Fatal):
    """There is no usable Java runtime in ``JAVA_HOME`` or on ``PATH``."""


class JavaTooOld(Fatal):
    """The Java runtime is older than Spark's minimum."""


class SparkInternalsMissing(Fatal):
    """This PySpark lacks an internal function or field that Emberkeep needs."""


class JvmStartFailed(Fatal):
    """The driver's JVM ended before its py4j gateway was ready."""


class SparkUnavailable(RetryLater):
    """No SparkContext is up, or its JVM does not respond."""


class InvalidSparkConfiguration(Fatal):
    """A Spark setting has a value that cannot be used."""


class InvalidSparkDefaults(InvalidSparkConfiguration):
    """This node's ``spark-defaults.conf`` cannot be read; another node's may be well."""


class CheckpointIdentityError(EmberkeepError):
    """A streaming query would continue from the checkpoint of a different query."""


class RestoreRefused(EmberkeepError):
    """A streaming query cannot start from the job's savepoint; nothing was changed."""


class DrainGivenUp(Fatal):
    """A planned batch of a drain has failed; the query continues from before that batch."""


class ClassArchiveFailed(RetryLater):
    """The class-data archive could not be built; JVMs start without it, more slowly."""


class StandbyFailed(RetryLater):
    """A standby process could not be prepared; jobs start without it, more slowly."""


class ClassArchiveBusy(RetryLater):
    """Another process is building the class-data archive."""
