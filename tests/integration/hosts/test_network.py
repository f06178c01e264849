"""The hosts of the other tests here: apart from each other as machines are, and gone when the test is gone."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.conditions import until
from tests.integration.hosts.host import Host
from tests.integration.hosts.network import LAN, OUTSIDE, Fault, Network
from tests.integration.hosts.requirements import CHECKOUT, fake_clock

pytestmark = [pytest.mark.integration, pytest.mark.long]

PORT = 7000
# Sends 200 numbered datagrams, in bursts, and prints the numbers that come in until one says "end".
SEND = """
import socket, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(200):
    sender.sendto(b"%d" % number + b" " * 900, (sys.argv[1], int(sys.argv[2])))
    if number % 20 == 19:
        time.sleep(0.04)
while True:
    sender.sendto(b"end", (sys.argv[1], int(sys.argv[2])))
    time.sleep(0.2)
"""
RECEIVE = """
import socket, sys
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("0.0.0.0", int(sys.argv[1])))
print("listening", flush=True)
numbers = []
while (datagram := receiver.recv(2000)) != b"end":
    numbers.append(int(datagram))
print(*numbers)
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).close()"
# Makes two hosts with a process on each, says so, and waits to be killed.
ABANDONED = """
import signal, sys
from pathlib import Path
from tests.integration.hosts.network import Network

network = Network(Path(sys.argv[1]))
for name in ("one", "two"):
    host = network.add(name)
    host.start("sleep", "3600")
    print(host.pid, flush=True)
print("ready", flush=True)
signal.pause()
"""


def listen(host: Host, port: int = PORT) -> None:
    server = host.start("python", "-m", "http.server", str(port), "--bind", "::")
    until(lambda: host.reaches("localhost", port), lambda: f"{host.name} listens: {server}")


def numbers(source: Host, destination: Host) -> list[int]:
    """The numbers of datagrams that arrive, in their order."""
    receiving = destination.start("python", "-c", RECEIVE, str(PORT))
    until(lambda: receiving.out, "the receiver listens")
    sending = source.start("python", "-c", SEND, destination.address, str(PORT))
    try:
        return [int(word) for word in receiving.wait().out.split()[1:]]
    finally:
        sending.process.kill()
        source.run("pkill", "-f", "sender.sendto")  # in its own pid namespace only


def test_a_host_has_its_own_name_addresses_processes_and_files(network: Network) -> None:
    one, two = network.add("one"), network.add("two")
    one.write("/etc/emberkeep/config.yaml", "mine: true\n")
    one.write("/tmp/mine", "")
    one.write("/mnt/shared/ours", "")
    assert one.done("hostname") == "one\n"
    assert one.done("getent", "ahostsv4", "two").split()[0] == two.address
    assert {Path(path).name for path in two.done("find", "/mnt/shared", "-type", "f").split()} == {"ours"}
    assert two.run("cat", "/etc/emberkeep/config.yaml").code != 0
    assert two.run("cat", "/tmp/mine").code != 0
    assert one.done("cat", "/proc/sys/kernel/random/boot_id") != two.done("cat", "/proc/sys/kernel/random/boot_id")
    sleeper = one.start("sleep", "3600")
    until(lambda: "sleep 3600" in one.done("ps", "-eo", "args"), "the process runs")
    assert two.done("pgrep", "-c", "-f", "^sleep 3600").strip() == "1"  # that of its own first process
    sleeper.process.kill()


def test_a_user_of_a_host_has_a_home_and_no_rights_elsewhere(network: Network) -> None:
    host = network.add("one")
    host.add_user("emberkeep", 4711)
    assert host.done("id", "-un", user="emberkeep") == "emberkeep\n"
    assert host.done("sh", "-c", "touch ~/mine && stat -c %U ~/mine", user="emberkeep") == "emberkeep\n"
    assert host.run("touch", "/mnt/local/home/root/mine", user="emberkeep").code != 0
    assert host.done("python", "-c", "print(1 + 1)", user="emberkeep") == "2\n"


def test_a_host_that_was_killed_starts_again_with_its_disk_and_a_new_boot(network: Network) -> None:
    one, two = network.add("one"), network.add("two")
    one.add_user("emberkeep", 4711)
    listen(one)
    assert two.reaches("one", PORT)
    one.write("/mnt/local/kept", "")
    boot = one.done("cat", "/proc/sys/kernel/random/boot_id")
    network.kill(one)
    assert not two.reaches("one", PORT)
    network.start(one)
    assert one.path("/mnt/local/kept").exists()
    assert one.done("cat", "/proc/sys/kernel/random/boot_id") != boot
    assert one.done("id", "-un", user="emberkeep") == "emberkeep\n"
    listen(one)
    assert two.reaches("one", PORT)


def test_hosts_reach_each_other_by_ipv6_alone(network: Network) -> None:
    one, two = (network.add(name, families=(6,)) for name in ("one", "two"))
    listen(one)
    assert two.reaches(one.address, PORT)
    assert two.reaches("one", PORT)
    assert not two.reaches(one.links[0].ipv4, PORT)


def test_a_host_at_two_switches_does_not_forward(network: Network) -> None:
    gateway, inside, user = network.add("gateway", LAN, OUTSIDE), network.add("inside"), network.add("user", OUTSIDE)
    listen(gateway)
    listen(inside)
    assert user.reaches("gateway", PORT)
    assert gateway.reaches("inside", PORT)
    assert not user.reaches(inside.address, PORT)


def test_a_cut_host_is_reached_by_nobody_until_it_is_healed(network: Network) -> None:
    one, two, three = (network.add(name) for name in ("one", "two", "three"))
    for host in (one, two, three):
        listen(host)
    network.cut(one)
    assert not one.reaches("two", PORT)
    assert not two.reaches("one", PORT)
    assert two.reaches("three", PORT)
    network.heal()
    assert one.reaches("two", PORT)
    assert two.reaches("one", PORT)


def test_packets_are_lost_in_one_direction_only(network: Network) -> None:
    one, two = network.add("one"), network.add("two")
    network.lose(one, two)
    assert numbers(two, one) == list(range(200))


@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        (Fault(lost=30), lambda found: len(found) < 190),
        (Fault(doubled=30), lambda found: len(found) > 210 and set(found) == set(range(200))),
        (Fault(delayed=30), lambda found: found != sorted(found)),
    ],
    ids=("lost", "doubled", "overtaken"),
)
def test_packets_meet_with_faults(network: Network, fault: Fault, seen: object) -> None:
    one, two = network.add("one"), network.add("two")
    assert numbers(one, two) == list(range(200))
    network.lose(one, two, fault)
    found = numbers(one, two)
    assert callable(seen)
    assert seen(found), found
    network.heal()
    assert numbers(one, two) == list(range(200))


def test_packets_between_all_hosts_meet_with_faults(network: Network) -> None:
    one, two, three = (network.add(name) for name in ("one", "two", "three"))
    for fault in (Fault(delayed=30), Fault(lost=5, doubled=5, delayed=30)):
        network.disturb(fault)
        for source, destination in ((one, three), (two, three), (three, one)):
            found = numbers(source, destination)
            assert found != sorted(found), fault
    network.heal()
    assert numbers(one, three) == list(range(200))


def test_packets_of_a_host_come_late(network: Network) -> None:
    one, two = network.add("one"), network.add("two")
    listen(two)
    network.delay(one, 0.3)
    took = f"import time; began = time.monotonic(); {CONNECT}; print(time.monotonic() - began)"
    assert float(one.done("python", "-c", took, two.address, str(PORT))) > 0.6
    assert numbers(one, two) == list(range(200))
    network.heal()
    assert float(one.done("python", "-c", took, two.address, str(PORT))) < 0.6


@pytest.mark.skipif(shutil.which("bindfs") is None, reason="bindfs is not installed: `make host-tools`")
def test_reads_and_writes_wait_while_the_mount_of_a_host_hangs(network: Network) -> None:
    one, two = network.add("one"), network.add("two")
    one.serve_shared()
    one.done("sh", "-c", "echo before >/mnt/shared/file")
    with one.hung_shared():
        reading = one.start("cat", "/mnt/shared/file")
        writing = one.start("sh", "-c", "echo after >/mnt/shared/other")
        assert two.done("cat", "/mnt/shared/file") == "before\n"
        until(lambda: "sh -c echo after" in one.done("ps", "-eo", "args"), "it has begun to write")
        assert (reading.process.poll(), writing.process.poll()) == (None, None)
        assert not (network.shared / "other").exists()
    assert reading.wait().out == "before\n"
    assert writing.wait().code == 0
    assert two.done("cat", "/mnt/shared/other") == "after\n"


def test_a_slow_host_drops_what_exceeds_its_bandwidth(network: Network) -> None:
    one, two = network.add("one"), network.add("two")
    network.slow(two, "100kbit")  # of some 3.6 Mbit per second
    assert len(numbers(one, two)) < 190
    network.heal()
    assert numbers(one, two) == list(range(200))


def test_a_host_has_its_own_time_of_day(network: Network) -> None:
    if fake_clock() is None:
        pytest.skip("libfaketime is not installed: `make host-tools`")
    one, two = network.add("one"), network.add("two")
    one.shift_clock(3600)
    now = "import time; print(time.time())"
    ahead = float(one.done("python", "-c", now)) - float(two.done("python", "-c", now))
    assert 3300 < ahead < 3900


def test_a_host_has_its_own_shared_memory(network: Network) -> None:
    one, two = network.add("one"), network.add("two")
    one.done("sh", "-c", "echo mine >/dev/shm/name")
    assert two.run("cat", "/dev/shm/name").code != 0
    assert not Path("/dev/shm/name").exists()


def test_nothing_is_left_when_the_test_is_killed(tmp_path: Path, network: Network) -> None:
    del network  # for its reason to skip
    (tmp_path / "abandoned").mkdir()
    test = subprocess.Popen(
        [sys.executable, "-c", ABANDONED, str(tmp_path / "abandoned")],
        cwd=CHECKOUT,
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert test.stdout is not None
    with test.stdout as output:
        pids = [int(output.readline()) for _ in range(2)]
        assert output.readline() == "ready\n"
        test.send_signal(signal.SIGKILL)
        test.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the hosts' first processes end", 60)
    mine = str(tmp_path / "abandoned")
    until(lambda: mine not in Path("/proc/self/mountinfo").read_text(), "no mount is left", 60)
    assert not {"lan1", "lan2"} & {name for _, name in socket.if_nameindex()}
