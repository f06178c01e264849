"""A cluster on several hosts: what its users reach, and what it survives."""

from __future__ import annotations

import re

import pytest

from emberkeep.jobs.model import JobStatus
from tests.integration.conditions import until
from tests.integration.hosts.host import SHARED
from tests.integration.hosts.network import Network
from tests.integration.hosts.numbered_rows import LIBRARY, SCRIPT, SETTINGS, NumberedRows
from tests.integration.hosts.site import AGENT_PORT, HostedCluster

pytestmark = [pytest.mark.integration, pytest.mark.long]


def submitted(cluster: HostedCluster, rows: NumberedRows, executors: int = 1) -> str:
    """Submit the stream from the client's host, where the shared directory is not mounted."""
    for name, text in (("app.py", SCRIPT), ("doubling.py", LIBRARY), ("settings.json", SETTINGS)):
        cluster.client.write(cluster.client.home() / name, text)
    job_id = cluster.submit(
        *("app.py", "--py-files", "doubling.py", "--files", "settings.json"),
        arguments=(str(SHARED / rows.place.name),),
        executors=executors,
    )
    cluster.wait_for(job_id, lambda job: job.state is JobStatus.RUNNING, "the job runs")
    return job_id


def more(cluster: HostedCluster, rows: NumberedRows, what: str) -> None:
    """Feed more rows, and wait until they come out."""
    rows.feed(2)
    until(rows.is_read, lambda: f"rows come out {what}: {rows.written()[-3:]}\n{cluster.story()}")


def finished(cluster: HostedCluster, rows: NumberedRows, job_id: str) -> None:
    rows.finish()
    job = cluster.wait_for(job_id, lambda job: job.state.is_globally_terminal, "the job ends")
    assert job.state is JobStatus.FINISHED, job
    assert rows.written() == rows.answer()


@pytest.mark.req("NET-3")
def test_the_hosts_of_the_leader_and_of_the_driver_are_lost(network: Network) -> None:
    cluster = HostedCluster(network)
    cluster.prepare()
    cluster.start()
    rows = NumberedRows(network.shared / "rows")
    job_id = submitted(cluster, rows)
    more(cluster, rows, "at first")

    network.kill(cluster.leader())
    more(cluster, rows, "after the leader's host was lost")
    job = cluster.wait_for(job_id, lambda job: job.emberkeep.driver, "its driver is known to the new leader")
    assert job.emberkeep.attempt == 1

    network.kill(cluster.driver_host(job))
    cluster.wait_for_attempt(job_id, 2)
    more(cluster, rows, "after the driver's host was lost")
    finished(cluster, rows, job_id)


@pytest.mark.req("NET-1", "NET-2")
@pytest.mark.parametrize("families", [(4, 6), (6,)], ids=["both-families", "ipv6-only"])
def test_users_outside_need_to_reach_job_managers_only(network: Network, families: tuple[int, ...]) -> None:
    """Users are at another switch. In a cluster that has IPv6 addresses only, they have no others either."""
    cluster = HostedCluster(network, job_managers=2, task_managers=1, families=families)
    cluster.prepare()
    (task_manager,) = cluster.task_managers
    address = task_manager.links[0].ipv6  # it binds one, and this is the first that its name leads to
    cluster.start({task_manager.name: {"taskmanager.rpc.port": str(AGENT_PORT)}})
    addresses = cluster.client.done("ip", "-o", "address", "show", "scope", "global")
    assert {4 if word == "inet" else 6 for word in re.findall(r"inet6?", addresses)} == set(families), addresses
    assert cluster.leader().reaches(address, AGENT_PORT)
    assert not cluster.client.reaches(address, AGENT_PORT)
    rows = NumberedRows(network.shared / "rows")
    job_id = submitted(cluster, rows)
    more(cluster, rows, "at first")
    is_shown_outside(cluster, job_id)
    finished(cluster, rows, job_id)


def is_shown_outside(cluster: HostedCluster, job_id: str) -> None:
    """The job's state, logs, page and Spark UI."""
    # The client may name a JobManager that does not lead.
    standby = next(host for host in cluster.job_managers if host is not cluster.leader())
    assert cluster.client.reaches(cluster.called(standby), cluster.port)
    assert "attempt 1" in cluster.command("info", job_id).lower()
    assert cluster.command("logs", job_id) == "rows are being read\n"
    page = cluster.fetch(f"/jobs/{job_id}", "text/html")
    assert page is not None
    assert "app.py" in page
    ui = cluster.client.start("emberkeep", "spark-ui", "--url", cluster.url_of(standby), *cluster.credentials, job_id)
    found = until(lambda: re.search(r"http://127\.0\.0\.1:\d+/\S+", ui.out), lambda: f"the Spark UI is served: {ui}")
    fetch = (
        "import sys, urllib.request as r, http.cookiejar as c; o = r.build_opener(r.HTTPCookieProcessor(c.CookieJar()))"
    )
    shown = cluster.client.done("python", "-c", f"{fetch}; print(o.open(sys.argv[1]).read().decode())", found[0])
    assert "Spark Jobs" in shown


@pytest.mark.req("NET-1", "NET-2")
@pytest.mark.parametrize("driver_is_hidden", [True, False], ids=["hidden-driver", "hidden-executor"])
def test_routers_translate_addresses_and_ports(network: Network, driver_is_hidden: bool) -> None:
    """JobManagers and one node, with the driver or the executor, are known by the addresses of their routers only."""
    cluster = HostedCluster(network, job_managers=2, task_managers=2, families=(4,), hidden=True)
    cluster.prepare()
    hidden, seen = cluster.task_managers
    network.cut(hidden, *cluster.job_managers)  # at their own addresses
    of_driver, of_executor = (hidden, seen) if driver_is_hidden else (seen, hidden)
    cluster.start(
        {of_driver.name: {"taskmanager.numberOfTaskSlots": "0"}, of_executor.name: {"taskmanager.driver-places": "0"}}
    )
    rows = NumberedRows(network.shared / "rows")
    job_id = submitted(cluster, rows)
    more(cluster, rows, "through the routers")
    is_shown_outside(cluster, job_id)
    network.kill(cluster.leader())
    more(cluster, rows, "after the leader's host was lost")
    assert cluster.driver_host(cluster.running(job_id)) is of_driver
    finished(cluster, rows, job_id)


@pytest.mark.req("NET-1")
def test_a_cluster_has_ipv6_addresses_only(network: Network) -> None:
    cluster = HostedCluster(network, job_managers=2, task_managers=1, families=(6,), by_address=True)
    cluster.prepare()
    cluster.start()
    rows = NumberedRows(network.shared / "rows")
    job_id = submitted(cluster, rows)
    more(cluster, rows, "over IPv6")
    is_shown_outside(cluster, job_id)
    network.kill(cluster.leader())
    more(cluster, rows, "after the leader's host was lost")
    finished(cluster, rows, job_id)


@pytest.mark.req("SEC-2")
def test_the_token_of_the_cluster_is_replaced(network: Network) -> None:
    """By the documented steps. The driver has credentials that are derived from the old one, so another one goes on."""
    cluster = HostedCluster(network, job_managers=2, task_managers=1)
    cluster.prepare()
    cluster.start()
    rows = NumberedRows(network.shared / "rows")
    job_id = submitted(cluster, rows)
    more(cluster, rows, "at first")
    for host in (*cluster.task_managers, *cluster.job_managers):
        cluster.stop_daemon(host)
    seen = cluster.client.path("/etc/emberkeep/token").read_text()
    cluster.replace_token()
    for host in cluster.job_managers:
        cluster.start_job_manager(host, {"high-availability.zookeeper.insecure-records": "sign"})
    leader = cluster.leader()
    for host in cluster.task_managers:
        cluster.start_task_manager(host, {})
    for host in sorted(cluster.job_managers, key=lambda host: host is leader):
        cluster.stop_daemon(host)
        cluster.start_job_manager(host)
        cluster.leader()
    cluster.wait_for_attempt(job_id, 2)
    more(cluster, rows, "with the new token")
    cluster.client.write("/etc/emberkeep/old-token", seen, 0o600)
    refused = cluster.client.run(
        "emberkeep",
        "list",
        "--url",
        cluster.url(),
        *cluster.credentials[:2],
        "-D",
        "security.token-file=/etc/emberkeep/old-token",
    )
    assert refused.code != 0
    assert "token" in refused.err, refused
    finished(cluster, rows, job_id)


@pytest.mark.req("SEC-9")
def test_the_certificates_of_all_hosts_are_replaced(network: Network) -> None:
    """By the documented steps, under a stream. Nothing is started again for that, and all that is new uses the new."""
    cluster = HostedCluster(network, job_managers=2, task_managers=2)
    cluster.prepare()
    cluster.start({host.name: {"taskmanager.rpc.port": str(AGENT_PORT)} for host in cluster.task_managers})
    rows = NumberedRows(network.shared / "rows")
    job_id = submitted(cluster, rows)
    more(cluster, rows, "at first")
    before = cluster.certificates(AGENT_PORT)
    assert len(set(before)) == 4

    cluster.replace_certificates()
    after = cluster.certificates(AGENT_PORT)
    assert len({*before, *after}) == 8, "each shows another one"
    more(cluster, rows, "with new certificates")
    job = cluster.running(job_id)
    assert job.emberkeep.attempt == 1

    cluster.driver_host(job).namespaces.run("pkill", "-KILL", "-f", "emberkeep.daemons.driver")
    cluster.wait_for_attempt(job_id, 2)
    more(cluster, rows, "after a driver and its executor have started with new certificates")
    network.kill(cluster.leader())
    until(lambda: cluster.registered() == len(cluster.task_managers), cluster.story)
    more(cluster, rows, "after the leader's host was lost")
    assert cluster.running(job_id).emberkeep.attempt == 2
    finished(cluster, rows, job_id)
