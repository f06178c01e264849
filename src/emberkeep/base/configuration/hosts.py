"""Host names and addresses as users write them, and as they are written before a port."""

from __future__ import annotations

import ipaddress


def host(text: str) -> str:
    """Return a host name in lower case, or an address in its shortest form: "::1" for "[0:0:0:0:0:0:0:1]".

    "" stands for all addresses where a port is bound, and for no address elsewhere. Raises ValueError.
    """
    name = text.strip().lower()
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        if bare != name or any(letter in name for letter in " /:@[]"):
            raise ValueError(
                "expected a host name or an address without a port, such as node-1.example, 10.0.0.5 or fd00::5"
            ) from None
    return name


def hosts(text: str) -> str:
    """Return a list that is separated by commas with each host as ``host`` returns it. Raises ValueError."""
    return ",".join(host(part) for part in text.split(",") if part.strip())


def join_host_port(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"{in_brackets(host)}:{port}"


def in_brackets(host: str) -> str:
    """Return a host as it is written before a port, and as Spark expects it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
