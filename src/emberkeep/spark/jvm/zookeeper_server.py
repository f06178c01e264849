"""Configuration and command of a ZooKeeper server from the jars in pyspark, for local clusters and tests.

To use an existing ensemble instead, set ``high-availability.zookeeper.quorum``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emberkeep.base.configuration.hosts import in_brackets
from emberkeep.base.configuration.layout import TlsFiles
from emberkeep.base.errors import Fatal
from emberkeep.base.files.durable import write_file
from emberkeep.base.files.private import make_private
from emberkeep.spark.distribution import spark_home
from emberkeep.spark.errors import SparkInternalsMissing
from emberkeep.spark.java import find_java

TICK_MS = 500  # the shortest session timeout is two ticks
_MAX_SESSION_MS = 120_000
_HEAP_MB = 128
_SINGLE = "org.apache.zookeeper.server.ZooKeeperServerMain"
_QUORUM = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


@dataclass(frozen=True)
class Peer:
    """A member of a quorum: its number, from 1, and where the other members reach it.

    ``host``: "" if it is at the address that all of them bind.
    """

    number: int
    quorum_port: int
    election_port: int
    host: str = ""


@dataclass(frozen=True)
class ServerPlan:
    """One server. If ``peers`` is empty, it runs standalone; otherwise it is the peer with ``number``.

    ``tls`` encrypts its links to clients and peers, with certificate and key in one file; None: they are not encrypted.
    """

    directory: Path
    address: str
    client_port: int
    number: int = 1
    peers: tuple[Peer, ...] = ()
    tls: TlsFiles | None = None


def prepare_server(plan: ServerPlan, environ: Mapping[str, str]) -> list[str]:
    """Write the server's configuration and return its command. Raises Fatal, JavaNotFound, SparkInternalsMissing."""
    jars = spark_home(environ) / "jars"
    if not any(jars.glob("zookeeper-3*.jar")):
        raise SparkInternalsMissing(
            f"{jars} contains no ZooKeeper",
            hint="install a PySpark that contains ZooKeeper, or set high-availability.zookeeper.quorum to your own "
            "ensemble",
        )
    data = plan.directory / "data"
    try:
        make_private(data)
    except OSError as error:
        raise Fatal(f"cannot create {data}: {error.strerror}", hint="check its permissions") from error
    configuration = plan.directory / "zoo.cfg"
    write_file(configuration, _configuration(plan, data).encode())
    if plan.peers:
        write_file(data / "myid", f"{plan.number}\n".encode())
    return [
        str(find_java(environ).executable),
        f"-Xmx{_HEAP_MB}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-Dzookeeper.jmx.log4j.disable=true",
        "-Dlog4j2.level=warn",
        "-cp",
        str(jars / "*"),
        _QUORUM if plan.peers else _SINGLE,
        str(configuration),
    ]


def _configuration(plan: ServerPlan, data: Path) -> str:
    settings = {
        "tickTime": TICK_MS,
        "minSessionTimeout": 2 * TICK_MS,
        "maxSessionTimeout": _MAX_SESSION_MS,
        "dataDir": data,
        **(_open_port(plan) if plan.tls is None else _encrypted_port(plan, plan.tls)),
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr, conf",
        "autopurge.purgeInterval": 1,  # hours
        "autopurge.snapRetainCount": 3,
    }
    if plan.peers:
        settings |= {"initLimit": 40, "syncLimit": 20}
        settings |= {
            f"server.{peer.number}": f"{in_brackets(peer.host or plan.address)}:{peer.quorum_port}:{peer.election_port}"
            for peer in plan.peers
        }
        settings |= (
            {}
            if plan.tls is None
            else {
                "sslQuorum": "true",
                "sslQuorumReloadCertFiles": "true",
                **_proofs("ssl.quorum.", plan.tls),
            }
        )
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _open_port(plan: ServerPlan) -> dict[str, object]:
    return {"clientPort": plan.client_port, "clientPortAddress": plan.address}


def _encrypted_port(plan: ServerPlan, tls: TlsFiles) -> dict[str, object]:
    """Clients show no certificates: they have credentials. A renewed certificate is used for the next connection."""
    return {
        "secureClientPort": plan.client_port,
        "secureClientPortAddress": plan.address,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.clientAuth": "none",
        "client.certReload": "true",
        **_proofs("ssl.", tls),
    }


def _proofs(prefix: str, tls: TlsFiles) -> dict[str, object]:
    return {
        f"{prefix}protocol": "TLSv1.3",
        f"{prefix}enabledProtocols": "TLSv1.3",
        f"{prefix}keyStore.location": tls.certificate,
        f"{prefix}keyStore.type": "PEM",
        f"{prefix}trustStore.location": tls.ca,
        f"{prefix}trustStore.type": "PEM",
    }
