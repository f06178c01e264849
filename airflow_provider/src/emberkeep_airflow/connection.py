"""What an Airflow connection of type ``emberkeep`` says: the cluster's address and the defaults of its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from emberkeep.base.configuration.hosts import join_host_port
from emberkeep.base.errors import InvalidInput
from emberkeep.client.endpoint import Endpoint, parse_url

_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


class ConnectionFields(Protocol):
    """The fields of an Airflow connection that are read here."""

    @property
    def conn_id(self) -> str: ...
    @property
    def host(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...
    @property
    def schema(self) -> str | None: ...
    @property
    def password(self) -> str | None: ...
    @property
    def extra_dejson(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class ClusterAccess:
    """A cluster as a connection names it.

    ``namespace``: of the jobs; "" for the token's. ``deployment``: name of the Airflow deployment, part of the identity
    of its tasks. ``console``: URL of the web console, without a trailing slash.
    """

    endpoint: Endpoint
    namespace: str = ""
    deployment: str = ""
    console: str = ""

    def job_page(self, job_id: str) -> str:
        """Return the address of a job's page in the console."""
        return f"{self.console or self.endpoint.url}/jobs/{job_id}"


def cluster_access(connection: ConnectionFields) -> ClusterAccess:
    """Return what the connection says. Raises InvalidInput that names the connection and the field.

    The token is never sent unencrypted to another machine, unless the connection permits it.
    """
    origin = f"connection {connection.conn_id}"
    extra = connection.extra_dejson
    scheme = (connection.schema or "https").strip().lower()
    host = (connection.host or "").strip()
    if not host:
        raise InvalidInput(f"{origin} names no JobManager", field="host", hint="set its host, for example jm.local")
    if connection.port:
        host = _with_port(host, connection.port, origin)
    url = parse_url(host, origin, scheme)
    others = tuple(
        parse_url(each, f"{origin}, others", scheme) for each in _text(extra, "others").split(",") if each.strip()
    )
    token = (connection.password or "").strip()
    endpoint = Endpoint(url, token, origin, others, _text(extra, "ca"))
    if token and not _flag(extra, "insecure_network", origin):
        for each in (url, *others):
            _refuse_plain(Endpoint(each, ""), origin)
    console = _text(extra, "console")
    return ClusterAccess(
        endpoint,
        namespace=_text(extra, "namespace"),
        deployment=_text(extra, "deployment"),
        console=parse_url(console, f"{origin}, console", scheme) if console else "",
    )


def _with_port(address: str, port: int, origin: str) -> str:
    """Return the address, which may have a scheme and a path, with the port behind its host. Raises InvalidInput."""
    scheme, separator, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    behind = host.rpartition("]")[2]
    if ":" in behind and (host != behind or behind.count(":") == 1):  # more of them are an IPv6 address
        raise InvalidInput(f"{origin}: the host has a port already", field="port", hint="leave the port empty")
    return f"{scheme}{separator}{join_host_port(host.strip('[]'), port)}{slash}{path}"


def _refuse_plain(endpoint: Endpoint, origin: str) -> None:
    if endpoint.url.startswith("http:") and not endpoint.is_loopback:
        raise InvalidInput(
            f"{origin}: {endpoint.url} does not encrypt and is another machine: the token is not sent there",
            field="schema",
            hint="use https; the extra field insecure_network permits it without",
        )


def _text(extra: Mapping[str, Any], name: str) -> str:
    value = extra.get(name)
    return "" if value is None else str(value).strip()


def _flag(extra: Mapping[str, Any], name: str, origin: str) -> bool:
    value = _text(extra, name).lower()
    if value not in _FLAGS:
        raise InvalidInput(f"{origin}: {name} is {value!r}", field=name, hint="true or false")
    return _FLAGS[value]
