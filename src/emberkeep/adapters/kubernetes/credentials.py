"""The API server's address and the credentials for it, from a service account or from a file like kubectl's. Blocks.

The official client runs the credential plugin of a file for as long as it takes, and goes on without credentials if it
fails. So the plugin runs here: for a bounded time, and its words reach the user.
"""

from __future__ import annotations

import base64
import datetime
import os
from dataclasses import dataclass
from typing import Any

from kubernetes import client, config
from kubernetes.config import exec_provider, kube_config

from emberkeep.base.errors import InvalidInput

_KILL_SECONDS = 1  # after the order to end, for a plugin that ignores it
_SERVICE = "KUBERNETES_SERVICE_HOST"  # set in every pod


class NoCredentials(Exception):
    """There are none now, perhaps later: a file cannot be read or is damaged, or the credential plugin gives none."""


@dataclass(frozen=True)
class Credentials:
    """``settings``: what the client needs. ``expires``: when other ones are needed, None if that is not known."""

    settings: client.Configuration
    expires: datetime.datetime | None = None

    @property
    def has_expired(self) -> bool:
        return self.expires is not None and self.expires <= datetime.datetime.now(datetime.UTC)


class CredentialSource:
    """Where the credentials come from: the file, or the pod in which this process runs, or kubectl's file.

    ``plugin_seconds``: how long a credential plugin may take.
    """

    def __init__(self, config_file: str, context: str, plugin_seconds: float) -> None:
        """Raises InvalidInput (there is a context, and no file that could have it)."""
        self._is_in_pod = not config_file and _SERVICE in os.environ
        if self._is_in_pod and context:
            raise InvalidInput(
                f"kubernetes.context is {context}, but a JobManager in a pod uses the pod's service account",
                field="kubernetes.context",
                hint="set kubernetes.config.file as well, or leave kubernetes.context empty",
            )
        self._config_file = config_file
        self._context = context
        self._plugin_seconds = plugin_seconds

    def check(self) -> Credentials | None:
        """Return the credentials, or None if a plugin must give them, which does not run now.

        Raises whatever the readers of the files raise.
        """
        if self._is_in_pod:
            return _of_pod()
        loader, plugin = self._loader()
        return None if plugin is not None else _of_file(loader)

    def read(self) -> Credentials:
        """Return the credentials as they are now. Raises NoCredentials."""
        try:
            if self._is_in_pod:
                return _of_pod()
            loader, plugin = self._loader()
            expires = None if plugin is None else self._ask(plugin)
            return _of_file(loader, expires)
        except NoCredentials:
            raise
        except Exception as error:  # a damaged file raises whatever its reader raises
            raise NoCredentials(str(error)) from error

    def _loader(self) -> tuple[Any, _Plugin | None]:
        """Return the reader of the file, and the plugin of the user in its context if there is one."""
        merger = _untyped(kube_config.KubeConfigMerger)(self._config_file or kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
        if merger.config is None:
            raise config.ConfigException("no file with a configuration was found")
        make = _untyped(kube_config.KubeConfigLoader)
        loader = make(merger.config, active_context=self._context or None, config_base_path=None)
        chosen = loader.current_context["context"]
        users, user = merger.config.safe_get("users"), chosen.get("user")
        entry = merger.config["users"].get_with_name(user, safe=True) if users and user else None
        if entry is None or "exec" not in entry["user"]:
            return loader, None
        cluster = merger.config["clusters"].get_with_name(chosen["cluster"])["cluster"]
        return loader, _Plugin(entry["user"], cluster)

    def _ask(self, plugin: _Plugin) -> datetime.datetime | None:
        """Put into the user's entry what the plugin gives; return when that expires. Raises NoCredentials."""
        description = plugin.user.value.pop("exec")
        run, node = _untyped(exec_provider.ExecProvider), _untyped(kube_config.ConfigNode)
        provider = run(node("exec", description), _directory(plugin.cluster.path), plugin.cluster)
        words = provider.args
        provider.args = ["timeout", f"--kill-after={_KILL_SECONDS}", f"{self._plugin_seconds:g}", *words]
        try:
            given = provider.run()
        except config.ConfigException as error:
            raise NoCredentials(f"the credential plugin {words[0]} failed or took too long: {error}") from error
        given = given if isinstance(given, dict) else {}
        if "token" in given:
            plugin.user.value["token"] = given["token"]
        elif "clientCertificateData" in given and "clientKeyData" in given:
            plugin.user.value["client-certificate-data"] = _encoded(given["clientCertificateData"])
            plugin.user.value["client-key-data"] = _encoded(given["clientKeyData"])
        else:
            raise NoCredentials(f"the credential plugin {words[0]} gave neither a token nor a certificate with its key")
        if "expirationTimestamp" not in given:
            return None
        expires = datetime.datetime.fromisoformat(given["expirationTimestamp"])
        return expires if expires.tzinfo is not None else expires.replace(tzinfo=datetime.UTC)


@dataclass(frozen=True)
class _Plugin:
    """The entries of a user that has a credential plugin, and of the cluster, in the file."""

    user: Any
    cluster: Any


def _of_pod() -> Credentials:
    credentials = Credentials(_settings())
    _untyped(config.load_incluster_config)(client_configuration=credentials.settings)
    return credentials


def _of_file(loader: Any, expires: datetime.datetime | None = None) -> Credentials:
    credentials = Credentials(_settings(), expires)
    loader.load_and_set(credentials.settings)
    return credentials


def _untyped(name: Any) -> Any:
    """Return a class or a function of the client that has no types."""
    return name


def _settings() -> client.Configuration:
    settings = client.Configuration()
    settings.retries = False  # the JobManager asks again
    return settings


def _directory(path: str | None) -> str:
    """Return the directory to which the paths in a file are relative."""
    return "" if path is None else os.path.dirname(os.path.abspath(path))  # noqa: PTH100, PTH120


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
