"""What can go wrong between Emberkeep and Spark."""

from __future__ import annotations

from emberkeep.base.errors import EmberkeepError, Fatal, RetryLater


class JavaNotFound(Fatal):
    """No Java runtime where one is looked for."""


class JavaTooOld(Fatal):
    """The Java runtime found is older than what Spark needs."""


class SparkInternalsMissing(Fatal):
    """This PySpark lacks an internal that Emberkeep builds upon; the job is left as it is."""


class JvmStartFailed(Fatal):
    """The driver's JVM ended before it could be talked to."""


class SparkUnavailable(RetryLater):
    """No SparkContext is up, or its JVM does not answer (any more)."""


class InvalidSparkConfiguration(Fatal):
    """A Spark setting has a value that cannot be used."""


class CheckpointIdentityError(EmberkeepError):
    """A streaming query would continue from the checkpoint of a different query."""


class RestoreRefused(EmberkeepError):
    """A streaming query cannot start from the savepoint that its job was given; nothing was changed."""


class DrainGivenUp(Fatal):
    """A planned batch of a drain has failed; the query goes on from before that batch."""


class ClassArchiveFailed(RetryLater):
    """No class-data archive could be built; JVMs start without one, only slower."""
