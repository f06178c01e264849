"""A host that hides another one: it forwards what is sent to its own addresses, as routers at home do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.hosts.host import Host

_RULES = """
table ip nat {{
 chain arriving {{
  type nat hook prerouting priority dstnat
  {ports}
  fib daddr type local meta l4proto tcp dnat to {hidden}
 }}
 chain leaving {{
  type nat hook postrouting priority srcnat
  masquerade
 }}
}}
"""


def hide(router: Host, hidden: Host, ports: Mapping[int, int]) -> None:
    """Let connections to ``router`` reach ``hidden``, and let ``hidden`` reach what ``router`` reaches.

    Connections keep their port, apart from those to ``ports``, which maps ports of the router to those of the host. The
    host reaches itself at the router's address. Nobody learns the addresses that connections come from.
    """
    inner = {link.segment: link.ipv4 for link in router.links}[hidden.links[0].segment]
    hidden.namespaces.run("ip", "route", "replace", "default", "via", inner)
    mapped = (f"fib daddr type local tcp dport {outer} dnat to {hidden.address}:{own}" for outer, own in ports.items())
    router.namespaces.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
    router.namespaces.run("nft", "-f", "-", given=_RULES.format(hidden=hidden.address, ports="\n  ".join(mapped)))
