"""Settings that name a web server outside the cluster, to which something is sent."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from emberkeep.base.errors import InvalidInput

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def check_web_server(url: str, key: str, *, sends: str, hint: str) -> SplitResult:
    """Return the parts of the address ``url``, which option ``key`` names.

    ``sends``: what goes there, such as "events". ``hint``: how to write such an address. Raises InvalidInput, which
    does not quote the address, because it may contain a secret.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:  # whose text quotes a password with a "/" in it as the port
        raise InvalidInput(f"{key} is not an address: its host or port is malformed", field=key, hint=hint) from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidInput(f"{key} is not the address of a web server", field=key, hint=hint)
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise InvalidInput(
            f"{key} would send {sends} unencrypted to {host}",
            field=key,
            hint="use https; http is for this machine only",
        )
    return parts
