"""Options of encryption, tokens, and the users that jobs run as."""

from __future__ import annotations

from emberkeep.base.configuration.hosts import hosts
from emberkeep.base.configuration.option_types import boolean, choice, text
from emberkeep.base.configuration.values import Option, define

TOKEN_FILE = define(
    Option(
        "security.token-file",
        "",
        text,
        "path",
        "File (mode 0600) with the bearer token of REST and RPC. Empty: `token` below the state directory, "
        "created at the first start.",
    )
)
ENCRYPTION = define(
    Option(
        "security.encryption",
        "tls",
        choice("none", "tls"),
        "choice",
        "Encryption of REST, web page, RPC and BLOBs, and the default of Spark's own encryption. `tls`: TLS 1.3; "
        "callers verify each server with the cluster's CA before they send the token. Jobs encrypt the links between "
        "their Spark processes, and what these spill. `none` is possible on loopback, and gives the token to any "
        "process that takes a server's port. Set the same value everywhere.",
    )
)
INSECURE_NETWORK = define(
    Option(
        "security.insecure-network",
        False,
        boolean,
        "boolean",
        "Whether `security.encryption: none` is permitted beyond loopback. Anyone who can read the network's traffic "
        "then gets the token, and with it control of the cluster.",
    )
)
TLS_CERTIFICATE = define(
    Option(
        "security.tls.certificate",
        "",
        text,
        "path",
        "PEM file with this node's certificate and its intermediates. The certificate must name the addresses at which "
        "the node's processes are called, and must be issued for server and client authentication. Empty: a "
        "certificate of the cluster's own CA, below `tls` in the state directory.",
    )
)
TLS_KEY = define(
    Option("security.tls.key", "", text, "path", "PEM file (mode 0600) with the key of security.tls.certificate.")
)
TLS_CA = define(
    Option(
        "security.tls.ca",
        "",
        text,
        "path",
        "PEM file with the CAs that may issue certificates of the cluster's processes. Empty: `tls/ca.pem` below the "
        "state directory.",
    )
)
ALLOWED_HOSTS = define(
    Option(
        "security.allowed-hosts",
        "",
        hosts,
        "list",
        "Further values of the Host header that the JobManager accepts, separated by commas, besides "
        "rest.address and loopback names.",
    )
)
RUN_AS = define(
    Option(
        "security.run-as",
        "",
        text,
        "list",
        "Operating system users that drivers and executors run as, separated by commas: "
        "`NAMESPACE=USER`, and `*=USER` or just `USER` for all other jobs. A job without a user is refused. "
        "Needs a task manager that runs as root, and encryption. Empty: the task manager's own user.",
    )
)
SPARK_AUTHENTICATE = define(
    Option(
        "security.spark.authenticate",
        True,
        boolean,
        "boolean",
        "Whether drivers and executors authenticate each other with a secret created for each attempt. Without "
        "authentication, Spark does not encrypt.",
    )
)
