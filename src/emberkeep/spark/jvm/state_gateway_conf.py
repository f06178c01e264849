"""Settings that direct Spark's access to checkpoints to the state gateway of each process's own task manager. Pure.

Every checkpoint has an address ``webhdfs://localhost/…``. Hadoop's client treats ``localhost`` as the name of a
nameservice, and reads the address of that nameservice from the settings, where it expands ``${env.…}`` from the
environment of its own process. Spark sends settings to executors unexpanded, so one configuration serves all nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

from emberkeep.local_state.gateway_paths import AUTHORITY
from emberkeep.protocol.hadoop_token import TOKENS_VARIABLE, with_credential
from emberkeep.spark.errors import InvalidSparkConfiguration

GATEWAY_VARIABLE = "EMBERKEEP_STATE_GATEWAY"  # host:port, set by the task manager for each process that it starts
CREDENTIAL_VARIABLE = "EMBERKEEP_STATE_CREDENTIAL"

NAMESERVICES = "dfs.nameservices"
_NAMENODES = f"dfs.ha.namenodes.{AUTHORITY}"
_PROXY_PROVIDER = f"dfs.client.failover.proxy.provider.{AUTHORITY}"
_ADDRESS = f"dfs.namenode.http-address.{AUTHORITY}.tm"
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


def gateway_settings(present: Mapping[str, str], nameservices: str) -> dict[str, str]:
    """Return the settings for the gateway. ``nameservices``: the job's existing HDFS nameservices, from any source.

    Raises InvalidSparkConfiguration if the job has an HDFS nameservice with the gateway's name.
    """
    address = f"${{env.{GATEWAY_VARIABLE}:-{_NOWHERE}}}"
    others = [name.strip() for name in nameservices.split(",") if name.strip()]
    clashing = [key for key in (_NAMENODES, _PROXY_PROVIDER) if f"spark.hadoop.{key}" in present]
    if present.get(f"spark.hadoop.{_ADDRESS}") == address:  # a copy of an earlier context's configuration
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
        _ADDRESS: address,
        "dfs.http.client.retry.policy.enabled": "true",
        "dfs.http.client.retry.policy.spec": _RETRIES,
        "dfs.webhdfs.socket.read-timeout": _ANSWER_WAIT,
    }
    return {f"spark.hadoop.{key}": value for key, value in settings.items()}


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
        changed[TOKENS_VARIABLE] = with_credential(changed.get(TOKENS_VARIABLE, ""), credential)
    return changed
