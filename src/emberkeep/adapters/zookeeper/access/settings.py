"""How a process connects to ZooKeeper, as configured: servers, credentials, encryption, and the key for its records."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kazoo.hosts import collect_hosts

from emberkeep.adapters.http.security import is_loopback
from emberkeep.adapters.zookeeper.access.signatures import RecordSigner, UnsignedRecords, signing_key
from emberkeep.base.configuration.options.high_availability import (
    ZOOKEEPER_ACL,
    ZOOKEEPER_AUTHORIZATION,
    ZOOKEEPER_AUTHORIZATION_FILE,
    ZOOKEEPER_CA_FILE,
    ZOOKEEPER_CERTIFICATE_FILE,
    ZOOKEEPER_CONNECTION_TIMEOUT,
    ZOOKEEPER_INSECURE_ACCESS,
    ZOOKEEPER_KEY_FILE,
    ZOOKEEPER_QUORUM,
    ZOOKEEPER_RECORDS,
    ZOOKEEPER_SASL,
    ZOOKEEPER_SESSION_TIMEOUT,
    ZOOKEEPER_TLS,
)
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.base.files.private import check_key_file, read_private


@dataclass(frozen=True)
class ZooKeeperLogin:
    """This cluster's identity at ZooKeeper. ``authorization``: "scheme:credentials". ``sasl``: the mechanism, or ""."""

    authorization: str = ""
    sasl: str = ""

    def __bool__(self) -> bool:
        return bool(self.authorization or self.sasl)

    @property
    def parts(self) -> tuple[str, str]:
        """Scheme and credentials."""
        scheme, _, credentials = self.authorization.partition(":")
        return scheme, credentials

    @property
    def sasl_options(self) -> dict[str, Any] | None:
        """The options for kazoo; None without SASL."""
        if not self.sasl:
            return None
        user, _, password = self.parts[1].partition(":")
        named = {"username": user, "password": password} if self.authorization else {}
        return {"mechanism": self.sasl, "service": "zookeeper", **named}


@dataclass(frozen=True)
class EncryptionFiles:
    """Files for TLS. ``ca_file``: None for the system's authorities. The others: None without a client certificate."""

    ca_file: str | None
    certificate_file: str | None
    key_file: str | None


@dataclass(frozen=True)
class SessionSettings:
    """How to connect; times in seconds.

    ``signer``: signs and checks what the nodes hold. ``creator_only``: only holders of ``login`` may use the nodes.
    ``tls``: None if connections are not encrypted.
    """

    hosts: str
    session_timeout: float
    operation_timeout: float
    signer: RecordSigner
    login: ZooKeeperLogin = ZooKeeperLogin()
    creator_only: bool = False
    tls: EncryptionFiles | None = None


def session_settings(configuration: Configuration, token: str) -> SessionSettings:
    """Return the configured settings. ``token``: the cluster's.

    Raises InvalidInput if servers or needed credentials are missing, or if servers that are not on loopback would be
    used without protection. Raises Fatal if the file with the credentials, or the file of a key, cannot be used.
    """
    hosts = configuration[ZOOKEEPER_QUORUM]
    if not hosts:
        raise InvalidInput(
            "high-availability.type is zookeeper, but no server is configured",
            field=ZOOKEEPER_QUORUM.key,
            hint=f"set {ZOOKEEPER_QUORUM.key} to host:port,host:port,…",
        )
    login, tls = _login(configuration), _encryption(configuration)
    rule = UnsignedRecords(configuration[ZOOKEEPER_RECORDS])
    if not (login or tls or configuration[ZOOKEEPER_INSECURE_ACCESS]):
        _check_loopback(hosts)
    return SessionSettings(
        hosts=hosts,
        session_timeout=configuration[ZOOKEEPER_SESSION_TIMEOUT],
        operation_timeout=configuration[ZOOKEEPER_CONNECTION_TIMEOUT],
        signer=RecordSigner(signing_key(token), rule),
        login=login,
        creator_only=_is_creator_only(configuration[ZOOKEEPER_ACL], login, rule),
        tls=tls,
    )


def _login(configuration: Configuration) -> ZooKeeperLogin:
    path, mechanism = configuration[ZOOKEEPER_AUTHORIZATION_FILE], configuration[ZOOKEEPER_SASL]
    authorization = configuration[ZOOKEEPER_AUTHORIZATION]
    if path and not authorization:
        authorization = read_private(Path(path), ZOOKEEPER_AUTHORIZATION_FILE.key)
    if authorization and ":" not in authorization:
        raise InvalidInput(
            "the credentials for ZooKeeper have no scheme",
            field=ZOOKEEPER_AUTHORIZATION.key,
            hint=f"set {ZOOKEEPER_AUTHORIZATION.key}, or the content of {ZOOKEEPER_AUTHORIZATION_FILE.key}, to "
            "digest:user:password",
        )
    if mechanism == "none":
        return ZooKeeperLogin(authorization)
    if importlib.util.find_spec("puresasl") is None:
        raise InvalidInput(
            f"{ZOOKEEPER_SASL.key} is {mechanism}, but the Python package pure-sasl is not installed",
            field=ZOOKEEPER_SASL.key,
            hint="run `pip install pure-sasl`, for GSSAPI `pip install pure-sasl[gssapi]`, on each node",
        )
    if mechanism == "DIGEST-MD5" and not authorization:
        raise InvalidInput(
            f"{ZOOKEEPER_SASL.key} is {mechanism}, but there are no credentials",
            field=ZOOKEEPER_AUTHORIZATION.key,
            hint=f"set {ZOOKEEPER_AUTHORIZATION.key} to digest:user:password",
        )
    return ZooKeeperLogin(authorization if mechanism == "DIGEST-MD5" else "", mechanism)


def _encryption(configuration: Configuration) -> EncryptionFiles | None:
    files = (ZOOKEEPER_CA_FILE, ZOOKEEPER_CERTIFICATE_FILE, ZOOKEEPER_KEY_FILE)
    if not configuration[ZOOKEEPER_TLS]:
        for option in files:
            if configuration[option]:
                raise InvalidInput(
                    f"{option.key} is set, but connections to ZooKeeper are not encrypted",
                    field=ZOOKEEPER_TLS.key,
                    hint=f"set {ZOOKEEPER_TLS.key} to true",
                )
        return None
    for option in files:
        if configuration[option] and not Path(configuration[option]).is_file():
            raise InvalidInput(
                f"{option.key}: there is no file {configuration[option]}",
                field=option.key,
                hint="check the path, and that this user may read the file",
            )
    if bool(configuration[ZOOKEEPER_CERTIFICATE_FILE]) != bool(configuration[ZOOKEEPER_KEY_FILE]):
        raise InvalidInput(
            "a certificate for ZooKeeper needs its key, and the key its certificate",
            field=ZOOKEEPER_CERTIFICATE_FILE.key,
            hint=f"set both {ZOOKEEPER_CERTIFICATE_FILE.key} and {ZOOKEEPER_KEY_FILE.key}",
        )
    if configuration[ZOOKEEPER_KEY_FILE]:
        check_key_file(configuration[ZOOKEEPER_KEY_FILE])
    return EncryptionFiles(*(configuration[option] or None for option in files))


def _is_creator_only(acl: str, login: ZooKeeperLogin, rule: UnsignedRecords) -> bool:
    if acl == "creator" and not login:
        raise InvalidInput(
            f"{ZOOKEEPER_ACL.key} is creator, but this cluster does not authenticate to ZooKeeper",
            field=ZOOKEEPER_AUTHORIZATION.key,
            hint=f"set {ZOOKEEPER_AUTHORIZATION.key} to digest:user:password, or {ZOOKEEPER_SASL.key}",
        )
    # Nodes of release 0.1.0 are open by default, and stay so while its processes take part.
    is_default = acl == "auto" and bool(login) and rule is not UnsignedRecords.KEEP
    return acl == "creator" or is_default


def _check_loopback(hosts: str) -> None:
    try:
        servers, _ = collect_hosts(hosts)
    except ValueError:
        raise InvalidInput(
            f"{ZOOKEEPER_QUORUM.key}: {hosts!r} does not name servers",
            field=ZOOKEEPER_QUORUM.key,
            hint="write host:port,host:port,…",
        ) from None
    for host, _ in servers:
        if not is_loopback(host):
            raise InvalidInput(
                f"{ZOOKEEPER_QUORUM.key}: {host} is another machine, but neither credentials nor SASL nor TLS are "
                "configured for ZooKeeper",
                field=ZOOKEEPER_QUORUM.key,
                hint=f"set {ZOOKEEPER_AUTHORIZATION_FILE.key} to a file (mode 0600) with digest:user:password, or "
                f"{ZOOKEEPER_SASL.key}, or {ZOOKEEPER_TLS.key}; {ZOOKEEPER_INSECURE_ACCESS.key} permits the start "
                "without them",
            )
