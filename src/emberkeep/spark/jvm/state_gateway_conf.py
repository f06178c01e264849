"""Settings that direct Spark's access to checkpoints to the state gateway of each process's own task manager. Pure.

Every checkpoint has an address ``swebhdfs://localhost/…``, or ``webhdfs://localhost/…`` without encryption. Hadoop's
client treats ``localhost`` as the name of a nameservice, and reads the address of that nameservice from the settings,
where it expands ``${env.…}`` from the environment of its own process. It finds the truststore in the same way. Spark
sends settings to executors unexpanded, so one configuration serves all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emberkeep.local_state.gateway_paths import AUTHORITY
from emberkeep.protocol.encoding.hadoop_token import ENCRYPTED_KIND, KIND, TOKENS_VARIABLE, with_credential
from emberkeep.spark.errors import InvalidSparkConfiguration

GATEWAY_VARIABLE = "EMBERKEEP_STATE_GATEWAY"  # host:port, set by the task manager for each process that it starts
CREDENTIAL_VARIABLE = "EMBERKEEP_STATE_CREDENTIAL"
TRUST_VARIABLE = "EMBERKEEP_STATE_TRUST"  # file with the gateway's certificate; absent if it does not encrypt

NAMESERVICES = "dfs.nameservices"
_NAMENODES = f"dfs.ha.namenodes.{AUTHORITY}"
_PROXY_PROVIDER = f"dfs.client.failover.proxy.provider.{AUTHORITY}"
_ADDRESS = f"dfs.namenode.http-address.{AUTHORITY}.tm"
_TLS_ADDRESS = f"dfs.namenode.https-address.{AUTHORITY}.tm"
TRUSTSTORE = "ssl.client.truststore.location"
TLS_FILE = "hadoop.ssl.client.conf"  # names the file with the TLS of Hadoop's clients
TLS_FILE_DEFAULT = "ssl-client.xml"
_NOWHERE = "127.0.0.1:9"  # address in a process without a gateway: connections are refused at once
# Pairs of a pause in ms and its number of retries, about two minutes in all; a gateway restarts within seconds.
_RETRIES = "100,10,500,20,2000,60"
_ANSWER_WAIT = "300s"  # the gateway acknowledges a large file only once the durable store has all of it

_LOCALITY_WAIT = "spark.locality.wait"
# These make tasks run on the nodes with their state. Spark prefers an executor by its id even after the executor is
# lost, so tasks wait only for the executor's node. The wait is long enough for a replacement executor there, because
# Spark has fixed the preferred places of the running batch. It is bounded, because the replacement may start on another
# node.
PLACEMENT_DEFAULTS = {
    "spark.locality.wait.process": "0",
    "spark.locality.wait.node": "15s",
    # Otherwise the tasks of a join run where most of the shuffled rows are.
    "spark.shuffle.reduceLocality.enabled": "false",
}


@dataclass(frozen=True)
class HadoopSite:
    """What the files of Hadoop's configuration say, as far as it concerns the gateway.

    - ``nameservices``: of HDFS, as Hadoop writes them: comma-separated.
    - ``tls``: file or setting that configures the TLS of Hadoop's clients; "" if none does.
    """

    nameservices: str = ""
    tls: str = ""


def gateway_settings(present: Mapping[str, str], site: HadoopSite, *, encrypts: bool) -> dict[str, str]:
    """Return the settings for the gateway of a job with the settings ``present``. ``encrypts``: the cluster encrypts.

    Raises InvalidSparkConfiguration if the job has an HDFS nameservice with the gateway's name, or configures the TLS
    of Hadoop's clients itself.
    """
    address = f"${{env.{GATEWAY_VARIABLE}:-{_NOWHERE}}}"
    key = _TLS_ADDRESS if encrypts else _ADDRESS
    nameservices = present.get(f"spark.hadoop.{NAMESERVICES}") or site.nameservices
    others = [name.strip() for name in nameservices.split(",") if name.strip()]
    clashing = [key for key in (_NAMENODES, _PROXY_PROVIDER) if f"spark.hadoop.{key}" in present]
    if present.get(f"spark.hadoop.{key}") == address:  # a copy of an earlier context's configuration
        others, clashing = [name for name in others if name != AUTHORITY], []
    if AUTHORITY in others or clashing:
        where = f"spark.hadoop.{clashing[0]}" if clashing else NAMESERVICES
        raise InvalidSparkConfiguration(
            f"{where} defines an HDFS nameservice {AUTHORITY!r}: the state gateway is known to Hadoop by that name",
            hint="give the nameservice another name, or set state.backend.local-recovery=false for this job",
        )
    settings = {
        NAMESERVICES: ",".join((*others, AUTHORITY)),
        _NAMENODES: "tm",
        key: address,
        "dfs.http.client.retry.policy.enabled": "true",
        "dfs.http.client.retry.policy.spec": _RETRIES,
        "dfs.webhdfs.socket.read-timeout": _ANSWER_WAIT,
        **(_tls_settings(present, site) if encrypts else {}),
    }
    return {f"spark.hadoop.{key}": value for key, value in settings.items()}


def _tls_settings(present: Mapping[str, str], site: HadoopSite) -> dict[str, str]:
    """Return what makes Hadoop's clients verify the gateway. Raises InvalidSparkConfiguration."""
    settings = {
        TRUSTSTORE: f"${{env.{TRUST_VARIABLE}:-}}",
        "ssl.client.truststore.type": "PKCS12",
        "ssl.client.truststore.reload.interval": "0",  # the gateway's next process has the same certificate
    }
    ours = {f"spark.hadoop.{key}": value for key, value in settings.items()}
    where = next(
        (key for key, value in ours.items() if present.get(key, value) != value),
        f"spark.hadoop.{TLS_FILE}" if f"spark.hadoop.{TLS_FILE}" in present else site.tls,
    )
    if where:
        raise InvalidSparkConfiguration(
            f"{where} configures the TLS of Hadoop's clients, which have only one truststore: they need it for the "
            "state gateway",
            hint="set state.backend.local-recovery=false for this job, or remove that configuration",
        )
    return settings


def placement_settings(present: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return defaults for settings that the job leaves unset, and a warning for each that it sets to another value."""
    values, warnings = {}, []
    for key, value in PLACEMENT_DEFAULTS.items():
        general = key.startswith(_LOCALITY_WAIT) and _LOCALITY_WAIT in present
        own = key if key in present else _LOCALITY_WAIT if general else None
        if own is None:
            values[key] = value
        elif present[own] != value:
            warnings.append(
                f"{own}={present[own]} is kept; {key}={value} is recommended where nodes hold state: with another "
                "value, tasks may run on nodes without their state, or wait long for a node that has failed"
            )
    return values, tuple(warnings)


def process_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a JVM: a gateway credential, if present, becomes a token that Hadoop reads."""
    changed = dict(environ)
    credential = changed.pop(CREDENTIAL_VARIABLE, "")
    if credential:
        kind = ENCRYPTED_KIND if changed.get(TRUST_VARIABLE) else KIND
        changed[TOKENS_VARIABLE] = with_credential(changed.get(TOKENS_VARIABLE, ""), credential, kind)
    return changed
