"""A Spark Master without workers inside the driver's own JVM, with which the application registers.

Task managers start the executors, which connect to the driver directly, so the Master decides nothing. This module
assembles the Master instead of calling its `startRpcEnvAndEndpoint`, because the Master's web page must be closed: it
would listen on the node's address without any authentication.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import structlog

from emberkeep.spark.errors import SparkInternalsMissing

_MASTER_CLASS = "org.apache.spark.deploy.master.Master"
_SYSTEM_NAME = "sparkMaster"
_ENDPOINT_NAME = "Master"
_LOOPBACK = "127.0.0.1"
_ID_PATTERN = "spark.deploy.appIdPattern"
log = structlog.get_logger(__name__)


class EmbeddedMaster:
    """One Master for one SparkContext. It is created and stopped on the script's thread."""

    def __init__(self, jvm: Any, configuration: Mapping[str, str]) -> None:
        """Start the Master. Raises SparkInternalsMissing."""
        from py4j.protocol import Py4JError

        conf = jvm.SparkConf(False)
        for key, value in configuration.items():
            conf.set(key, value)
        # Spark's own ids are equal for applications of two Masters that start in the same second.
        conf.set(_ID_PATTERN, f"app-%s-%04d-{secrets.token_hex(4)}")
        try:
            self._rpc_env, port = _start(jvm, conf)
        except (Py4JError, TypeError) as error:
            raise SparkInternalsMissing(
                f"cannot start this Spark's {_MASTER_CLASS} in the driver: {error}",
                hint="Emberkeep works with PySpark 4.3",
            ) from error
        self.url = f"spark://{_LOOPBACK}:{port}"

    def stop(self) -> None:
        """Stop the Master; do nothing if its JVM has ended."""
        from py4j.protocol import Py4JError

        try:
            self._rpc_env.shutdown()
        except (Py4JError, OSError) as error:
            log.debug("the embedded Master had ended already", reason=str(error))


def _start(jvm: Any, conf: Any) -> tuple[Any, int]:
    """Start a Master, close its web page, and return its RpcEnv and port."""
    spark = jvm.org.apache.spark
    entry = getattr(spark.SecurityManager, "$lessinit$greater$default$3")()
    security = spark.SecurityManager(conf, jvm.scala.Option.empty(), entry)
    rpc_env = spark.rpc.RpcEnv.create(_SYSTEM_NAME, _LOOPBACK, 0, conf, security, False)
    master = spark.deploy.master.Master(rpc_env, rpc_env.address(), 0, security, conf)
    endpoint = rpc_env.setupEndpoint(_ENDPOINT_NAME, master)
    # The Master replies only after its own start, so after this reply its web page exists and can be closed.
    request = getattr(getattr(spark.deploy.master, "MasterMessages$BoundPortsRequest$"), "MODULE$")
    endpoint.askSync(request, jvm.scala.reflect.ClassTag.Any())
    getattr(master, "org$apache$spark$deploy$master$Master$$webUi")().stop()
    return rpc_env, rpc_env.address().port()
