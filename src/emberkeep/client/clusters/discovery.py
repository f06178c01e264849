"""Find the cluster for a command.

The first of these that exists is used:

1. ``--url``
2. ``-D rest.address`` or ``-D rest.port``
3. $EMBERKEEP_URL
4. the same two keys in the environment, or in a configuration file that the user named
5. the local cluster recorded below the state directory, if a JobManager of that cluster runs

The ``config.yaml`` below the state directory names no cluster: it describes the local cluster, which may not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from emberkeep.base.configuration.hosts import join_host_port
from emberkeep.base.configuration.layout import StateLayout, state_layout
from emberkeep.base.configuration.options.job_managers import REST_ADDRESS, REST_PORT
from emberkeep.base.configuration.options.security import ENCRYPTION, INSECURE_NETWORK, TLS_CA, TOKEN_FILE
from emberkeep.base.configuration.values import Configuration, Option
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.client.clusters.cluster_file import ClusterRecord, read_cluster
from emberkeep.client.endpoint import Endpoint, parse_url
from emberkeep.client.errors import NoCluster

URL_VARIABLE = "EMBERKEEP_URL"
_NEAREST_ORIGIN = "-D"


def find_cluster(configuration: Configuration, environ: Mapping[str, str], url: str | None) -> Endpoint | None:
    """Return the cluster for a command; None if none is named and none runs. Raises InvalidInput, Fatal."""
    layout = state_layout(configuration, environ)
    if url:
        return _named(url, "--url", configuration, layout)
    if _NEAREST_ORIGIN in (configuration.origin(REST_ADDRESS), configuration.origin(REST_PORT)):
        return _configured(configuration, layout)
    if environ.get(URL_VARIABLE):
        return _named(environ[URL_VARIABLE], URL_VARIABLE, configuration, layout)
    if any(_is_named(option, configuration, layout) for option in (REST_ADDRESS, REST_PORT)):
        return _configured(configuration, layout)
    record = running_cluster(layout.cluster_file)
    if record is None:
        return None
    endpoint = local_endpoint(record, layout.cluster_file)
    named = _is_named(TOKEN_FILE, configuration, layout)
    return replace(endpoint, token=read_token(Path(configuration[TOKEN_FILE]))) if named else endpoint


def require_cluster(configuration: Configuration, environ: Mapping[str, str], url: str | None) -> Endpoint:
    """Return the cluster for a command. Raises NoCluster, InvalidInput, Fatal."""
    endpoint = find_cluster(configuration, environ, url)
    if endpoint is None:
        raise NoCluster
    return endpoint


def running_cluster(cluster_file: Path) -> ClusterRecord | None:
    """Return the recorded local cluster if one of its JobManagers is alive, else None."""
    record = read_cluster(cluster_file)
    return record if record is not None and record.is_served else None


def local_endpoint(record: ClusterRecord, cluster_file: Path) -> Endpoint:
    """Return the address and token of a recorded cluster. Raises Fatal if its token cannot be read."""
    token = read_token(Path(record.token_file))
    return Endpoint(record.url, token, str(cluster_file), record.standby_urls, record.ca)


def read_token(path: Path) -> str:
    """Return the token in ``path``. Raises Fatal."""
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not plain text"
        raise Fatal(f"cannot read the token file {path}: {reason}", hint="check security.token-file") from None
    if not token or not token.isprintable() or " " in token:
        raise Fatal(f"the token file {path} holds no token", hint="check security.token-file")
    return token


def _is_named(option: Option[Any], configuration: Configuration, layout: StateLayout) -> bool:
    origin = configuration.origin(option)
    return origin != "default" and not origin.startswith(f"{layout.config_file}:")


def _configured(configuration: Configuration, layout: StateLayout) -> Endpoint:
    port = configuration[REST_PORT]
    if port == 0:
        raise InvalidInput(
            "rest.port is 0 (any free port), which names no cluster",
            field="rest.port",
            hint="name it with --url",
        )
    source = configuration.origin(REST_ADDRESS if configuration.origin(REST_PORT) == "default" else REST_PORT)
    return _named(join_host_port(configuration[REST_ADDRESS], port), source, configuration, layout)


def _named(text: str, source: str, configuration: Configuration, layout: StateLayout) -> Endpoint:
    """Return the cluster at the URL or address ``text``, with its token if it is known. Raises InvalidInput, Fatal."""
    record = read_cluster(layout.cluster_file)
    encrypts = _encrypts(parse_url(text, source), configuration, record)
    url = parse_url(text, source, "https" if encrypts else "http")
    endpoint = Endpoint(url, "", source, ca=_authorities(configuration, layout, record))
    token_file = _token_file(endpoint, configuration, layout, record)
    if token_file is None:
        return endpoint
    is_plain = url.startswith("http:")
    if is_plain and encrypts:
        raise InvalidInput(
            f"{source}: {url} does not encrypt, but this cluster does: its token is not sent there",
            hint=f"use https{url.removeprefix('http')}; if that cluster was started without encryption, set "
            f"{ENCRYPTION.key} to none",
        )
    if is_plain and not endpoint.is_loopback and not configuration[INSECURE_NETWORK]:
        raise InvalidInput(
            f"{source}: {url} does not encrypt and is another machine: the token is not sent there",
            hint=f"encrypt the cluster ({ENCRYPTION.key}); {INSECURE_NETWORK.key} permits it without",
        )
    return replace(endpoint, token=read_token(token_file))


def _encrypts(url: str, configuration: Configuration, record: ClusterRecord | None) -> bool:
    """True if the cluster at ``url`` encrypts: as recorded if it is the local cluster, else as configured."""
    if record is not None and urlsplit(url).netloc in (urlsplit(own).netloc for own in record.urls):
        return bool(record.ca)
    return configuration[ENCRYPTION] == "tls"


def _token_file(
    endpoint: Endpoint, configuration: Configuration, layout: StateLayout, record: ClusterRecord | None
) -> Path | None:
    if configuration[TOKEN_FILE]:
        return Path(configuration[TOKEN_FILE])
    if record is not None and record.url == endpoint.url:
        return Path(record.token_file)
    # The local cluster's own token must not be sent to other machines.
    return layout.token_file if endpoint.is_loopback and layout.token_file.is_file() else None


def _authorities(configuration: Configuration, layout: StateLayout, record: ClusterRecord | None) -> str:
    """Return the file with the CAs to trust; "" for this system's CAs, which may have certified a proxy."""
    if configuration[TLS_CA]:
        return configuration[TLS_CA]
    if record is not None and record.ca:
        return record.ca
    return layout.tls_files.ca if Path(layout.tls_files.ca).is_file() else ""
