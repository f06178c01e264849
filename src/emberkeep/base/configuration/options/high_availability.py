"""Options of the job store and the leader election, with and without ZooKeeper."""

from __future__ import annotations

from emberkeep.base.configuration.option_types import SOME_TIME, boolean, choice, text
from emberkeep.base.configuration.values import Option, define

HA_TYPE = define(
    Option(
        "high-availability.type",
        "embedded",
        choice("embedded", "zookeeper"),
        "choice",
        "`embedded`: one JobManager, which keeps its jobs in a local file. `zookeeper`: several JobManagers, "
        "of which one is the leader.",
        deprecated_keys=("high-availability",),
    )
)
HA_CLUSTER_ID = define(
    Option(
        "high-availability.cluster-id",
        "default",
        text,
        "id",
        "Name of the cluster, unique among the clusters that share a ZooKeeper.",
    )
)
ZOOKEEPER_QUORUM = define(
    Option(
        "high-availability.zookeeper.quorum",
        "",
        text,
        "list",
        "host:port of each ZooKeeper server, separated by commas. ZooKeeper 3.6 or newer.",
    )
)
ZOOKEEPER_ROOT = define(
    Option(
        "high-availability.zookeeper.path.root",
        "/emberkeep",
        text,
        "path",
        "ZooKeeper node below which each cluster has a node of its own.",
    )
)
ZOOKEEPER_SESSION_TIMEOUT = define(
    Option(
        "high-availability.zookeeper.client.session-timeout",
        4.0,
        SOME_TIME,
        "duration",
        "Silence after which ZooKeeper ends a leader's session. The servers limit it to between 2 and 20 of "
        "their ticks.",
    )
)
ZOOKEEPER_CONNECTION_TIMEOUT = define(
    Option(
        "high-availability.zookeeper.client.connection-timeout",
        15.0,
        SOME_TIME,
        "duration",
        "Time after which a ZooKeeper operation without a reply counts as failed.",
    )
)
ZOOKEEPER_AUTHORIZATION = define(
    Option(
        "high-availability.zookeeper.client.authorization",
        "",
        text,
        "text",
        "Credentials of this cluster at ZooKeeper: `digest:user:password`. Set them in the configuration "
        "file, because other users can read a process's arguments.",
        secret=True,
    )
)
ZOOKEEPER_AUTHORIZATION_FILE = define(
    Option(
        "high-availability.zookeeper.client.authorization-file",
        "",
        text,
        "path",
        "File (mode 0600) with the credentials, used if high-availability.zookeeper.client.authorization is empty.",
    )
)
ZOOKEEPER_SASL = define(
    Option(
        "high-availability.zookeeper.client.sasl",
        "none",
        choice("none", "DIGEST-MD5", "GSSAPI"),
        "choice",
        "SASL mechanism at ZooKeeper. `DIGEST-MD5` uses user and password of the credentials; `GSSAPI` uses the "
        "process's Kerberos ticket for the service `zookeeper`. Needs the Python package pure-sasl.",
    )
)
ZOOKEEPER_TLS = define(
    Option(
        "high-availability.zookeeper.client.ssl.enabled",
        False,
        boolean,
        "boolean",
        "Encrypt the connections to ZooKeeper, and check the servers' certificates and host names.",
    )
)
ZOOKEEPER_CA_FILE = define(
    Option(
        "high-availability.zookeeper.client.ssl.ca-file",
        "",
        text,
        "path",
        "PEM file with the CAs that may sign the servers' certificates. Empty: the system's CAs.",
    )
)
ZOOKEEPER_CERTIFICATE_FILE = define(
    Option(
        "high-availability.zookeeper.client.ssl.certificate-file",
        "",
        text,
        "path",
        "PEM file with this cluster's certificate for ZooKeeper; needs the key file.",
    )
)
ZOOKEEPER_KEY_FILE = define(
    Option(
        "high-availability.zookeeper.client.ssl.key-file",
        "",
        text,
        "path",
        "PEM file (mode 0600) with the private key of that certificate.",
    )
)
ZOOKEEPER_INSECURE_ACCESS = define(
    Option(
        "high-availability.zookeeper.insecure-access",
        False,
        boolean,
        "boolean",
        "Whether ZooKeeper servers that are not on loopback may be used with no credentials, no SASL and no TLS. "
        "Anyone who can reach such servers can read the cluster's records and stop the cluster.",
    )
)
ZOOKEEPER_ACL = define(
    Option(
        "high-availability.zookeeper.client.acl",
        "auto",
        choice("auto", "open", "creator"),
        "choice",
        "Who may read and change this cluster's ZooKeeper nodes. `open`: everyone. `creator`: only clients with the "
        "same credentials. `auto`: `creator` if there are credentials or SASL, else `open`.",
    )
)
ZOOKEEPER_RECORDS = define(
    Option(
        "high-availability.zookeeper.insecure-records",
        "refuse",
        choice("refuse", "sign", "keep-unsigned"),
        "choice",
        "What to do with records in ZooKeeper that are not signed with this cluster's key. `refuse` is the only secure "
        "value. `sign`: trust them, and let the next leader sign them, after an upgrade or a change of the token. "
        "`keep-unsigned`: trust them and sign nothing, while processes of release 0.1.0 take part.",
    )
)
