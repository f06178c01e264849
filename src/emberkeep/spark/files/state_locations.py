"""Translate a checkpoint's durable location into the one that Spark uses: the same, or the node's state gateway."""

from __future__ import annotations

from typing import Any, Protocol

from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.local_state.gateway_paths import gateway_uri
from emberkeep.spark.errors import InvalidSparkConfiguration, SparkInternalsMissing
from emberkeep.spark.notices import Notices


class StateLocations(Protocol):
    """Translation of durable locations for Spark."""

    def for_spark(self, spark: Any, location: str) -> str:
        """Return the location that Spark must use for a durable ``location``. A translated one is returned unchanged.

        ``spark``: the query's session.
        """


class DirectLocations:
    """Leaves locations as they are: Spark accesses the durable store directly."""

    def for_spark(self, spark: Any, location: str) -> str:
        del spark
        return location


class GatewayLocations:
    """Replaces locations with addresses at the node's state gateway. ``own_root``: the job's own checkpoints.

    ``gateway``: see ``gateway_address``.

    A location that the gateway cannot address stays the same, and a notice says so.
    """

    def __init__(self, gateway: str, job_id: JobId, own_root: str, notices: Notices) -> None:
        self._gateway = gateway
        self._job_id = job_id
        self._own_root = own_root
        self._notices = notices
        self._prefix = f"{gateway}/{job_id}/"

    def for_spark(self, spark: Any, location: str) -> str:
        if location.startswith(self._prefix):
            return location
        try:
            return gateway_uri(self._gateway, self._job_id, _qualified(spark, location), self._own_root)
        except InvalidInput as error:
            self._notices.say(f"the checkpoint at {location} gets no local copies: {error.message}")
            return location


def _qualified(spark: Any, location: str) -> str:
    """Return the absolute location. The default file system resolves a path without a scheme."""
    scheme, colon, _ = location.partition(":")
    if colon and "/" not in scheme and scheme.lower() != "file":
        return location
    return _plain(spark, location)


def _plain(spark: Any, location: str) -> str:
    """Return a location qualified by Hadoop; one on the local file system as a plain path without scheme and escapes.

    Raises SparkInternalsMissing, InvalidSparkConfiguration (its file system cannot be used).
    """
    from py4j.protocol import Py4JError

    try:
        path = spark._jvm.org.apache.hadoop.fs.Path(location)
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        qualified = path.getFileSystem(configuration).makeQualified(path)
        uri = qualified.toUri()
        return str(uri.getPath() if uri.getScheme() == "file" else qualified.toString())
    except TypeError as error:
        raise SparkInternalsMissing(
            f"cannot resolve {location} with this Spark's Hadoop: {error}",
            hint="Emberkeep works with PySpark 4.3",
        ) from error
    except Py4JError as error:
        raise InvalidSparkConfiguration(
            f"the checkpoint location {location} cannot be used: {error}", hint="check the location and fs.defaultFS"
        ) from error
