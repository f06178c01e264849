"""Calls the API server with the official Python client, each for a bounded time. Blocks.

Imported only where task managers are pods, as it needs the extra ``kubernetes``. Answers stay JSON: a client may be
newer or older than the API server, and its typed objects refuse what they do not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from kubernetes import client, config
from pydantic import ValidationError
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from emberkeep.adapters.kubernetes.credentials import CredentialSource, NoCredentials
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import (
    Absent,
    Conflict,
    EmberkeepError,
    Fatal,
    InvalidInput,
    RetryLater,
    Unavailable,
    UnknownOutcome,
)

TIMEOUT = 5.0  # seconds for one call
_PLUGIN_TIMEOUTS = 2.0  # a credential plugin may take this many times as long: it asks servers of its own
_WORDS = 400  # characters of an error message
_NO_ANSWER, _UNAUTHORIZED, _TOO_MANY_REQUESTS, _SERVER_ERRORS = 0, 401, 429, 500  # 0: TLS has failed
_OF_CREDENTIALS = (NoCredentials, config.ConfigException, OSError, ValueError)  # read before a call, if they are old
_CHECK = "check that the API server answers (`kubectl get --raw /readyz`)"


class KubernetesApi:
    """The pods of one namespace, and the nodes. Each call may take ``timeout`` seconds.

    A call for which a credential plugin runs first may take three times as long. Calls that only read raise Unavailable
    if there is no answer, and RetryLater with the API server's words if it refused. ``create_pod`` and ``delete_pod``
    may also raise UnknownOutcome.
    """

    def __init__(self, namespace: str, config_file: str, context: str, timeout: float = TIMEOUT) -> None:
        """Check the credentials: the file's, or those of the pod in which this process runs, or kubectl's.

        Raises InvalidInput (a context without a file, in a pod), Fatal.
        """
        self._source = CredentialSource(config_file, context, _PLUGIN_TIMEOUTS * timeout)
        try:
            self._credentials = self._source.check()  # None: they must be read before the next call
        except Exception as error:  # a damaged file raises whatever its reader raises
            raise Fatal(
                f"there are no credentials for Kubernetes: {error}",
                hint="set kubernetes.config.file, or run the JobManager in a pod with a service account",
            ) from error
        self._core: Any = None  # the client with these credentials, once there was a call
        self._namespace = namespace
        self._timeout = timeout

    def check_pod(self, manifest: dict[str, Any]) -> None:
        """Raise InvalidInput if this is no pod that could be created. The API server is not asked."""
        try:
            pod: Any = client.V1Pod.model_validate(manifest)
        except ValidationError as error:  # its text has the values, which may be secret
            faults = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_input=False)
            )
            raise InvalidInput(f"the template does not make a pod: {faults}"[:_WORDS]) from None
        # The client also takes its own names, such as node_selector. The API server drops them without a word.
        if unknown := sorted(_missing(manifest, pod.model_dump(mode="json", by_alias=True, exclude_unset=True))):
            raise InvalidInput(f"the template does not make a pod: Kubernetes does not know {', '.join(unknown)}")

    def pods(self, label: str) -> dict[str, Any]:
        """Return the pods with a label such as "name=value". Raises Unavailable, RetryLater."""
        return self._read(
            lambda: self._api.list_namespaced_pod(
                self._namespace, label_selector=label, _preload_content=False, _request_timeout=self._timeout
            )
        )

    def nodes(self) -> dict[str, Any]:
        """Return the nodes, which may be some seconds old. Raises Unavailable, RetryLater."""
        return self._read(
            # From the API server's memory: they are many, and change often.
            lambda: self._api.list_node(resource_version="0", _preload_content=False, _request_timeout=self._timeout)
        )

    def create_pod(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Create a pod, and return it. Raises Conflict (its name exists), RetryLater, Unavailable, UnknownOutcome."""
        return self._change(
            lambda: self._api.create_namespaced_pod(
                self._namespace, manifest, _preload_content=False, _request_timeout=self._timeout
            )
        )

    def delete_pod(self, name: str, uid: str, grace_seconds: int) -> None:
        """Delete a pod, unless that has happened. Raises RetryLater, Unavailable, UnknownOutcome."""
        options = {"gracePeriodSeconds": grace_seconds, "preconditions": {"uid": uid}}
        try:
            self._change(
                lambda: self._api.delete_namespaced_pod(
                    name, self._namespace, body=options, _preload_content=False, _request_timeout=self._timeout
                )
            )
        except (Absent, Conflict):  # Conflict: another pod has the name
            return

    @property
    def _api(self) -> Any:
        """The client, which takes plain JSON too, though its types deny that. Raises NoCredentials."""
        if self._credentials is None or self._credentials.has_expired:
            self._core = self._credentials = None
            self._credentials = self._source.read()
        if self._core is None:
            self._core = client.CoreV1Api(client.ApiClient(self._credentials.settings))
        return self._core

    def _read(self, call: Callable[[], Any]) -> dict[str, Any]:
        try:
            return from_json(call().data, dict[str, Any])
        except msgspec.DecodeError as error:
            raise Unavailable(f"the API server's answer cannot be used: {error}", hint=_CHECK) from None
        except client.ApiException as error:
            raise self._refusal(error) from error
        except HTTPError as error:
            raise _no_answer(error) from error
        except _OF_CREDENTIALS as error:
            raise _no_credentials(error) from error

    def _change(self, call: Callable[[], Any]) -> dict[str, Any]:
        try:
            return from_json(call().data, dict[str, Any])
        except msgspec.DecodeError as error:  # of an answer that says that it was done
            raise UnknownOutcome(f"the API server's answer cannot be used: {error}", hint=_CHECK) from None
        except client.ApiException as error:
            if error.status == _NO_ANSWER or error.status >= _SERVER_ERRORS:
                raise UnknownOutcome(f"the API server failed: {_words(error)}", hint=_CHECK) from error
            raise self._refusal(error) from error
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise _no_answer(error) from error
        except HTTPError as error:
            raise UnknownOutcome(f"the API server did not answer: {error}"[:_WORDS], hint=_CHECK) from error
        except _OF_CREDENTIALS as error:  # they are read before anything is sent
            raise _no_credentials(error) from error

    def _refusal(self, error: client.ApiException) -> EmberkeepError:
        words = _words(error)
        match error.status:
            case 404:
                return Absent(words)
            case 409:
                return Conflict(words)
            case status if status in (_NO_ANSWER, _TOO_MANY_REQUESTS) or status >= _SERVER_ERRORS:
                return Unavailable(f"the API server cannot answer now: {words}", hint=_CHECK)
            case status:
                if status == _UNAUTHORIZED:
                    self._core = self._credentials = None  # the file, or its plugin, may have others by now
                return RetryLater(
                    f"Kubernetes refuses: {words}", hint="check the rights of the JobManager and its quota"
                )


def _missing(given: Any, known: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of the keys in ``given`` that ``known`` lacks. Both are JSON."""
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            here = f"{path}.{key}" if path else str(key)
            if key in known:
                yield from _missing(value, known[key], here)
            else:
                yield here
    elif isinstance(given, list) and isinstance(known, list):
        for number, (one, other) in enumerate(zip(given, known, strict=True)):
            yield from _missing(one, other, f"{path}.{number}")


def _no_credentials(error: Exception) -> Unavailable:
    return Unavailable(f"the credentials for Kubernetes cannot be read: {error}"[:_WORDS], hint=_CHECK)


def _no_answer(error: HTTPError) -> Unavailable:
    return Unavailable(f"the API server does not answer: {error}"[:_WORDS], hint=_CHECK)


def _words(error: client.ApiException) -> str:
    """Return the message of the API server's Status object."""
    body = error.body or ""
    try:
        message = from_json(body, dict[str, Any]).get("message")
    except msgspec.DecodeError:
        message = None
    return " ".join(str(message or body or f"{error.status} {error.reason}").split())[:_WORDS]
