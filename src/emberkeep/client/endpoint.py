"""The address of a JobManager, and the token that it requires."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from emberkeep.base.errors import InvalidInput


@dataclass(frozen=True)
class Endpoint:
    """The address of a cluster and its token, which is never printed.

    ``url`` has no trailing slash. ``source`` says where the address was found. ``others`` are the URLs of the cluster's
    other JobManagers, used when this one cannot be reached. ``ca`` is the file with the CAs by which servers at https
    URLs are verified; "" for this system's CAs.
    """

    url: str
    token: str = field(repr=False)
    source: str = ""
    others: tuple[str, ...] = ()
    ca: str = ""

    @property
    def is_loopback(self) -> bool:
        return is_loopback(urlsplit(self.url).hostname or "")


def is_loopback(host: str) -> bool:
    """True if a host name or address belongs to the loopback network."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_url(text: str, origin: str, scheme: str = "http") -> str:
    """Return the base URL in ``text`` ("host:port" or "http://host:port"). Raises InvalidInput.

    ``scheme`` is used if ``text`` has none.
    """
    candidate = text.strip()
    if "://" not in candidate:
        candidate = f"{scheme}://{candidate}"
    hint = "for example http://127.0.0.1:8081"
    try:
        parts = urlsplit(candidate)
        port = parts.port
    except ValueError as error:
        raise InvalidInput(f"{origin}: {text!r} is not a URL: {error}", hint=hint) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(f"{origin}: {text!r} is not the URL of a JobManager", hint=hint)
    if parts.username or parts.password:
        raise InvalidInput(f"{origin}: a URL must not carry a password", hint="the token comes from a file")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
