"""A network of hosts that consist of namespaces: switches that join them, and what goes wrong on the way.

All switches are in a network namespace of their own, so the machine's own network is untouched. Faults are rules at the
ports of the switches: a host cannot tell them from a broken cable.
"""

from __future__ import annotations

import itertools
import secrets
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.hosts.disks import SharedDisk
from tests.integration.hosts.host import Host, Link
from tests.integration.hosts.namespaces import Namespaces
from tests.integration.hosts.router import hide

_HOSTS = 200  # addresses of hosts end with 1 to 200
_LATE = Path(__file__).with_name("late_frames.py")
_SLOW = "1mbit"  # at which reordered packets leave


@dataclass(frozen=True)
class Segment:
    """A switch, and the addresses of the hosts at it."""

    name: str
    ipv4: str  # prefix of 24 bits
    ipv6: str  # prefix of 64 bits

    def link(self, number: int, interface: str) -> Link:
        return Link(
            segment=self.name,
            interface=interface,
            port=f"{self.name}{number}",
            ipv4=f"{self.ipv4}.{number}",
            ipv6=f"{self.ipv6}::{number}",
            mac=f"02:00:{self.ipv4.split('.')[1]:0>2}:00:00:{number:02x}",
        )


LAN = Segment("lan", "10.77.0", "fd77:0:0:1")  # where the cluster is
OUTSIDE = Segment("out", "10.78.0", "fd78:0:0:1")  # where its users are
PRIVATE = Segment("priv", "10.79.0", "fd79:0:0:1")  # behind a router that translates addresses
SEGMENTS = (LAN, OUTSIDE, PRIVATE)


@dataclass(frozen=True)
class Fault:
    """What a switch does to packets from one port that go to another: percentages of them."""

    lost: int = 0
    doubled: int = 0
    delayed: int = 0  # so that later packets overtake them


@dataclass
class Network:
    """Hosts and the switches between them. ``directory``: the hosts' disks, and the file system that all share.

    ``disk``: where that file system is, if it is not just a directory. ``kind``: of the hosts that are added.
    """

    directory: Path
    disk: SharedDisk | None = None
    kind: type[Host] = Host
    hosts: list[Host] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shared = self.directory / "shared" if self.disk is None else self.disk.path
        self.shared.mkdir(mode=0o777, exist_ok=True)
        self._faults: dict[tuple[str, str], Fault] = {}  # by the two ports
        self._routers: dict[str, tuple[Host, Mapping[int, int]]] = {}  # by the host that is behind it
        self._queues: set[str] = set()  # ports at which marked packets wait
        self._late: dict[str, subprocess.Popen[bytes]] = {}  # by the port whose packets it holds back
        script = "ip link set lo up; echo ready; exec sleep infinity"
        self._switches = Namespaces(("net",), ("sh", "-c", script), {})
        for segment in SEGMENTS:
            self._switches.run("ip", "link", "add", segment.name, "type", "bridge")
            self._switches.run("ip", "link", "set", segment.name, "up")

    def add(self, name: str, *segments: Segment, families: Iterable[int] = (4, 6)) -> Host:
        """Start a host at ``segments`` (the LAN if none is named), with addresses of these families of IP."""
        number = len(self.hosts) + 1
        assert number <= _HOSTS
        links = [segment.link(number, f"eth{index}") for index, segment in enumerate(segments or (LAN,))]
        shared = self.shared if self.disk is None else Path(self.disk.device)
        host = self.kind(name, self.directory / "disks" / name, shared, tuple(links), frozenset(families))
        self.hosts.append(host)
        self.start(host)
        return host

    def hide(self, host: Host, router: Host, ports: Mapping[int, int] | None = None) -> None:
        """Let a host be reached at the addresses of ``router`` only, which both have IPv4 addresses for.

        ``ports`` maps ports of the router to other ports of the host. All other ports are the same.
        """
        self._routers[host.name] = router, ports or {}
        hide(router, host, ports or {})
        self._name_hosts()

    def start(self, host: Host) -> None:
        """Start a host that is new, or that was killed: it has its disk, and nothing that was in its memory."""
        host.boot(secrets.token_hex(16))
        for link in host.links:
            peer = ("peer", "name", link.interface, "netns", str(host.pid), "address", link.mac)
            self._switches.run("ip", "link", "add", link.port, "type", "veth", *peer)
            self._switches.run("ip", "link", "set", link.port, "master", link.segment, "up")
        host.set_up_links()
        if host.name in self._routers:
            router, ports = self._routers[host.name]
            hide(router, host, ports)
        self._name_hosts()
        self._apply()

    def kill(self, host: Host) -> None:
        """A host loses its power: no connection is closed, and none of its processes does anything any more."""
        for link in host.links:
            self._switches.run("ip", "link", "del", link.port)
            self._queues.discard(link.port)
        host.kill()
        self._apply()

    def close(self) -> None:
        """End everything. Fails if a process of a host is left."""
        self._end_delays()
        for host in self.hosts:
            host.kill()
        self._switches.kill()

    # --- faults -------------------------------------------------------------------------------------------------------

    def lose(self, source: Host, destination: Host, fault: Fault = Fault(lost=100)) -> None:
        """Do this to packets from one host to another, and nothing to those in the other direction."""
        self.trouble([(source, destination)], fault)

    def trouble(self, pairs: Iterable[tuple[Host, Host]], fault: Fault) -> None:
        """Do this to packets from the first to the second host of each pair; nothing more with ``Fault()``."""
        for source, destination in pairs:
            self._note(source, destination, fault)
        self._apply()

    def _note(self, source: Host, destination: Host, fault: Fault) -> None:
        for link in source.links:
            for other in destination.links:
                if link.segment == other.segment:
                    self._faults[link.port, other.port] = fault

    def cut(self, host: Host, *others: Host) -> None:
        """No packet passes between a host and the others (all, if none is named)."""
        away = others or [each for each in self.hosts if each is not host]
        self.trouble([pair for other in away for pair in ((host, other), (other, host))], Fault(lost=100))

    def disturb(self, fault: Fault) -> None:
        """Do this to packets between all hosts."""
        self.trouble(itertools.permutations(self.hosts, 2), fault)

    def slow(self, host: Host, rate: str) -> None:
        """Give a host no more than this bandwidth in either direction, in tc's notation: "10mbit"."""
        shape = ("root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms")
        for link in host.links:
            self._switches.run("tc", "qdisc", "replace", "dev", link.port, *shape)
            host.namespaces.run("tc", "qdisc", "replace", "dev", link.interface, *shape)

    def delay(self, host: Host, seconds: float) -> None:
        """Let packets from and to a host come so much later. Its other faults apply to these packets or not."""
        for link in host.links:
            near, far = f"{link.port}n", f"{link.port}f"
            self._switches.run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
            self._switches.run("ip", "link", "set", link.port, "nomaster")
            self._switches.run("ip", "link", "set", far, "master", link.segment, "up")
            self._switches.run("ip", "link", "set", near, "up")
            words = ("setpriv", "--pdeathsig", "KILL", sys.executable, "-I", str(_LATE), link.port, near, str(seconds))
            relay = subprocess.Popen(self._switches.enter(*words), stdout=subprocess.PIPE)
            self._late[link.port] = relay
            assert relay.stdout is not None
            assert relay.stdout.readline() == b"ready\n"

    def end_delay(self, host: Host) -> None:
        """Undo ``delay``. Idempotent."""
        for link in host.links:
            relay = self._late.pop(link.port, None)
            if relay is None:
                continue
            relay.kill()
            relay.wait()
            assert relay.stdout is not None
            relay.stdout.close()
            if host.is_up:
                self._switches.run("ip", "link", "del", f"{link.port}n")
                self._switches.run("ip", "link", "set", link.port, "master", link.segment)

    def _end_delays(self) -> None:
        for host in self.hosts:
            self.end_delay(host)

    def heal(self) -> None:
        """End all faults of the network."""
        self._end_delays()
        self._faults.clear()
        self._queues.clear()
        self._apply()
        for host in self.hosts:
            for link in host.links if host.is_up else ():
                host.namespaces.run("tc", "qdisc", "replace", "dev", link.interface, "root", "noqueue")
                self._switches.run("tc", "qdisc", "replace", "dev", link.port, "root", "noqueue")

    def _apply(self) -> None:
        """Replace all rules at once."""
        by_port = {link.port: link for host in self.hosts if host.is_up for link in host.links}
        chains: dict[str, list[str]] = {}
        for (port, other), fault in self._faults.items():
            if port in by_port and other in by_port:
                chains.setdefault(port, []).extend(_rules(by_port[other], fault))
                if fault.delayed:
                    self._delay_marked(other)
        text = [
            f'chain {port} {{ type filter hook ingress device "{port}" priority 0;\n' + "\n".join(rules) + "\n}"
            for port, rules in chains.items()
        ]
        table = "table netdev faults {\n" + "\n".join(text) + "\n}\n"
        self._switches.run("nft", "-f", "-", given=f"table netdev faults\ndelete table netdev faults\n{table}")

    def _delay_marked(self, port: str) -> None:
        """Let packets of priority 1:2 wait behind each other at this port, so that others overtake them.

        Once for each port: the kernel cannot replace such a queue by an equal one.
        """
        if port in self._queues:
            return
        self._queues.add(port)
        queue = ("tc", "qdisc", "replace", "dev", port, "root", "handle", "1:", "htb", "default", "1")
        self._switches.run(*queue)
        for number, rate in ((1, "1gbit"), (2, _SLOW)):
            words = ("parent", "1:", "classid", f"1:{number}", "htb", "rate", rate, "burst", "2kb", "quantum", "1514")
            self._switches.run("tc", "class", "replace", "dev", port, *words)

    def _name_hosts(self) -> None:
        """Tell each host the names of all: NAME, with all addresses; NAME.SEGMENT, with those of one segment."""
        for reader in self.hosts:
            if not reader.is_up:
                continue
            here = {link.segment for link in reader.links}
            if reader.name in self._routers:
                here |= {link.segment for link in self._routers[reader.name][0].links}
            lines = [
                f"{address} {host.name}.{link.segment} {host.name}"
                for host in self.hosts
                for link in host.links
                if link.segment in here
                for address in host.addresses(link)
            ]
            reader.know_names(lines)


def _rules(destination: Link, fault: Fault) -> list[str]:
    """ARP and the discovery of neighbours pass: without replies to them, the other direction would fail as well."""
    packets = (
        f"ether daddr {destination.mac} ether type ip",
        f"ether daddr {destination.mac} ether type ip6 meta l4proto != ipv6-icmp",
    )
    rules = []
    for each in packets:
        if fault.lost:
            rules.append(f"{each} {_chance(fault.lost)} drop")
        if fault.delayed:
            rules.append(f"{each} {_chance(fault.delayed)} meta priority set 1:2")
        if fault.doubled:
            rules.append(f'{each} {_chance(fault.doubled)} dup to "{destination.port}"')
    return rules


def _chance(percent: int) -> str:
    return "" if percent >= 100 else f"numgen random mod 100 < {percent}"
