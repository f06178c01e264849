"""Translates errors of object stores into ours, with messages that hold no secret."""

from __future__ import annotations

import re

from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

from emberkeep.base.errors import Absent, EmberkeepError, Fatal, RetryLater

_STATUS = re.compile(r"status code: ([1-5][0-9]{2})")
_CODE = re.compile(r"<Code>([A-Za-z0-9]{1,64})</Code>|\"(?:code|status)\": ?\"([A-Za-z0-9_]{1,64})\"")
_TRANSPORT = re.compile(r"HTTP error: ([a-z ]{1,60})")
_ADDRESS = re.compile(r"\S*(?:://|[?&]\S+=)\S*")
# obstore asks there if the environment has no credentials. The addresses can be configured, their paths cannot.
_METADATA = ("169.254.", "metadata.google.internal", "/latest/api/token", "/latest/meta-data/")
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
# S3 says these of credentials with the status 400.
_EXPIRED = ("ExpiredToken", "InvalidToken", "TokenRefreshRequired")
# S3 says this with the status 400, of a connection on which bytes were late.
_LATE = ("RequestTimeout",)
# The clocks of this machine and of the store differ.
_SKEWED = ("RequestTimeTooSkewed",)
# S3 says this of an upload in parts whose last request it has carried out: the reply to that was lost.
_NO_UPLOAD = ("NoSuchUpload",)
_TOO_BUSY = {408, 425, 429}
_CREDENTIALS = "set the store's credentials in the environment of this process"


def object_store_error(action: str, error: Exception) -> EmberkeepError:
    """Return obstore's ``error`` as ours. ``action``: what failed, for the message.

    The error's own text is not passed on: it may quote requests and replies that hold credentials.
    """
    text = str(error)
    status, code = _status(text), _code(text)
    answer = " ".join(part for part in (f"HTTP status {status}" if status else "", code) if part)
    if any(address in text for address in _METADATA):
        return Fatal(f"{action}: the environment has no credentials", hint=_CREDENTIALS)
    if code in _NO_BUCKET:
        return Fatal(f"{action}: the bucket does not exist ({answer})", hint="create it, or correct the location")
    if code in _NO_UPLOAD:
        return RetryLater(f"{action}: the store no longer has the parts that were sent ({answer})")
    if isinstance(error, FileNotFoundError):
        return Absent(f"{action}: does not exist")
    if code in _SKEWED:
        return Fatal(f"{action}: the store refuses the request ({answer})", hint="set the clock of this machine")
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or status in (401, 403) or code in _EXPIRED:
        return Fatal(
            f"{action}: the store refuses the request ({answer or 'no permission'})",
            hint="check credentials and permissions",
        )
    if status:
        if status >= 500 or status in _TOO_BUSY or code in _LATE:
            return RetryLater(f"{action}: the store is unavailable now ({answer})")
        # S3's reply to HEAD has no text: with status 400, expired credentials are the usual reason.
        what = "the location and the store's settings" if code else "credentials, the location and the store's settings"
        return Fatal(f"{action}: the store refuses the request ({answer})", hint=f"check {what}")
    transport = _TRANSPORT.search(text)
    if transport is None:
        return _unsent(action, text)
    if transport.group(1).startswith("builder error"):
        return Fatal(f"{action}: the store's address is not valid", hint="plain http needs AWS_ALLOW_HTTP=true")
    return RetryLater(
        f"{action}: the store does not answer ({transport.group(1).strip()})", hint="check the network path to it"
    )


def _unsent(action: str, text: str) -> EmberkeepError:
    """Return the error for a failure with neither an HTTP status nor a transport error.

    The store's settings are wrong, or obstore did not understand a reply. The message quotes obstore without addresses.
    """
    line = text.strip().splitlines()[0] if text.strip() else "unknown error"
    reason = _ADDRESS.sub("…", line.partition("error: ")[2] or line)[:200]
    if "missing" in reason.lower() or "must be specified" in reason.lower():
        return Fatal(f"{action}: {reason}", hint=_CREDENTIALS)
    return RetryLater(f"{action}: {reason}")


def _status(text: str) -> int:
    match = _STATUS.search(text)
    return int(match.group(1)) if match else 0


def _code(text: str) -> str:
    match = _CODE.search(text)
    return (match.group(1) or match.group(2)) if match else ""
