"""A Spark Connect server in the driver's own JVM.

PySpark can start such a server too, but only at a fixed port of the machine, so that two jobs on one node would
collide. Here the server listens on a free port of loopback, and asks its clients for a token.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from emberkeep.spark.errors import SparkInternalsMissing

# A secret of the job, so that all its attempts ask for the same token.
TOKEN_VARIABLE = "CONNECT_TOKEN"  # noqa: S105 - its name
_NEEDED = ("google.rpc", "grpc", "grpc_status", "zstandard")
_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectService"


@dataclass(frozen=True)
class ConnectServer:
    """A running server. ``port``: on loopback. ``token``: required from each client."""

    context: Any
    port: int
    token: str


def require_packages() -> None:
    """Raise SparkInternalsMissing if a package that Spark Connect needs is not installed in this environment."""
    missing = [name for name in _NEEDED if not _is_installed(name)]
    if missing:
        raise SparkInternalsMissing(
            f"Spark Connect needs packages that this node's Python does not have: {', '.join(missing)}",
            hint="install them on all nodes: pip install 'emberkeep[connect]'",
        )


def start_server(conf: Mapping[str, str]) -> ConnectServer:
    """Create the SparkContext with ``conf``, and the server in its JVM.

    The job's own configuration must name the server's plugin (``spark.plugins``). Raises SparkInternalsMissing.
    """
    require_packages()
    from pyspark import SparkConf, SparkContext
    from pyspark.sql.session import SparkSession

    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(32)
    settings = SparkConf()
    own = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.authenticate.token": token,
    }
    for key, value in {**conf, **own}.items():
        settings.set(key, value)
    context = SparkContext.getOrCreate(settings)
    SparkSession(context)  # the session that the server's own sessions are made from; it lives as long as the driver
    return ConnectServer(context, _port(context), token)


def is_serving(server: ConnectServer) -> bool:
    """True if the server still runs. Raises what Py4J raises if the JVM does not answer."""
    return bool(_service(server.context).started())


def client_session(server: ConnectServer) -> Any:
    """Return a session of this process at ``server``, and make PySpark's functions use Spark Connect from now on."""
    from pyspark.sql.connect.session import SparkSession

    # PySpark looks at these to decide whether a call is for a session of its own JVM or for a remote one.
    os.environ["SPARK_LOCAL_REMOTE"] = "1"
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    os.environ["SPARK_CONNECT_AUTHENTICATE_TOKEN"] = server.token
    # gRPC sends a token without TLS only to the name localhost.
    return SparkSession.builder.remote(f"sc://localhost:{server.port}").getOrCreate()


def _service(context: Any) -> Any:
    return getattr(getattr(context._jvm, f"{_SERVICE}$"), "MODULE$")


def _port(context: Any) -> int:
    from py4j.protocol import Py4JError

    try:
        return int(_service(context).localPort())
    except (Py4JError, TypeError) as error:
        raise SparkInternalsMissing(
            "this Spark has no Spark Connect server", hint="Emberkeep works with PySpark 4.3"
        ) from error


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package that contains it
        return False
