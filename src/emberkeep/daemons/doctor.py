"""``emberkeep doctor``: looks at this machine, and at the cluster if one runs, and prints a report as JSON.

A process of its own, like a daemon, because it connects as daemons do. What it writes into a storage or into ZooKeeper
to see whether that works, it deletes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import secrets
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import structlog

from emberkeep.adapters.object_store.location import directory_at, without_obstore
from emberkeep.adapters.zookeeper.access.settings import session_settings
from emberkeep.adapters.zookeeper.layout import zookeeper_layout
from emberkeep.base.clock import SystemClock
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.directories import WORKING_DIRECTORY
from emberkeep.base.configuration.options.high_availability import HA_TYPE
from emberkeep.base.configuration.options.job_managers import (
    REST_BIND_ADDRESS,
    REST_BIND_PORT,
    REST_PORT,
    SPARK_UI_BIND_PORT,
    SPARK_UI_PORT,
)
from emberkeep.base.configuration.options.jobs import DRIVER_LEASE
from emberkeep.base.configuration.options.savepoints import SAVEPOINT_DIRECTORY
from emberkeep.base.configuration.options.task_managers import TASK_MANAGER_HOST
from emberkeep.base.configuration.places import OBJECT_STORES, scheme_of
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import EmberkeepError, Fatal, InvalidInput
from emberkeep.client.clusters.discovery import URL_VARIABLE, find_cluster, read_token
from emberkeep.client.endpoint import Endpoint
from emberkeep.client.errors import NotAuthorised
from emberkeep.client.rest_client import RestClient
from emberkeep.daemons.arguments import parse_arguments
from emberkeep.daemons.encryption import encrypts
from emberkeep.daemons.local_zookeeper import with_local_zookeeper
from emberkeep.daemons.probes.memory import read_memory
from emberkeep.daemons.probes.servers import ServerSight, look_at, look_at_free_port, read_certificate_file
from emberkeep.daemons.probes.storage import read_disk, try_storage
from emberkeep.daemons.probes.versions import versions_here, versions_of, versions_of_standbys
from emberkeep.daemons.probes.zookeeper import look_at_zookeeper
from emberkeep.daemons.process_main import EXIT_OK, EXIT_USAGE
from emberkeep.diagnosis.certificates import certificate_findings
from emberkeep.diagnosis.clocks import ClockReading, clock_findings
from emberkeep.diagnosis.machine import (
    DiskFacts,
    JavaFacts,
    cgroup_findings,
    descriptor_findings,
    disk_findings,
    java_findings,
    memory_findings,
    path_findings,
)
from emberkeep.diagnosis.model import Finding, Report, Severity
from emberkeep.diagnosis.network import PortState, port_findings
from emberkeep.diagnosis.object_store import object_store_findings
from emberkeep.diagnosis.settings import LeaseFacts, lease_findings
from emberkeep.diagnosis.storage import storage_findings
from emberkeep.diagnosis.versions import NodeVersions, version_findings
from emberkeep.diagnosis.zookeeper import zookeeper_findings
from emberkeep.protocol.rest_cluster import ConfigurationEntry
from emberkeep.protocol.rest_task_managers import TaskManagerSummary
from emberkeep.spark.java import find_java

See = Callable[[str, int, str], Awaitable[ServerSight]]

_MIB = 1024**2
_AT_ONCE = 20  # servers that are looked at


@dataclass
class _Seen:
    """What is judged once all has been looked at. ``releases``: of the registered JobManagers, by address."""

    clocks: list[ClockReading] = field(default_factory=list)
    releases: dict[str, str] = field(default_factory=dict)


def main(arguments: list[str]) -> int:
    """Look, and print the report. Return the exit code, which says only whether there is a report."""
    # Standard output is the report's.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    own.add_argument("--url")
    given, others = own.parse_known_args(arguments)
    try:
        configuration, layout = parse_arguments("doctor", others)
        report = asyncio.run(_examine(configuration, layout, given.url))
    except InvalidInput as error:
        sys.stderr.write(msgspec.json.encode({"message": error.message, "hint": error.hint}).decode())
        return EXIT_USAGE
    sys.stdout.write(msgspec.json.encode(report).decode())
    return EXIT_OK


async def _examine(configuration: Configuration, layout: StateLayout, url: str | None) -> Report:
    findings = await asyncio.to_thread(_machine, configuration, layout)
    seen = _Seen()
    runs = expected = False
    try:
        configuration = await asyncio.to_thread(with_local_zookeeper, configuration, layout)
    except EmberkeepError as error:
        findings.append(_failure("cluster", str(layout.cluster_file), error))
    if configuration[HA_TYPE] == "zookeeper":
        findings += await _zookeeper(configuration, layout, seen)
    endpoint, problem = _cluster(configuration, url)
    findings += problem
    if endpoint is not None:
        # An address in the configuration file is that of a cluster that may not have been started yet.
        expected = bool(url or os.environ.get(URL_VARIABLE) or endpoint.source == str(layout.cluster_file))
        runs, found = await _running(endpoint, configuration, seen, expected=expected)
        findings += found
    if encrypts(configuration) and not (runs and endpoint is not None and endpoint.url.startswith("http:")):
        findings += await asyncio.to_thread(_own_certificate, configuration, layout)
    if not problem and not runs and not expected:
        findings += _future_ports(configuration)
    return Report(findings=[*findings, *clock_findings(seen.clocks)])


def _machine(configuration: Configuration, layout: StateLayout) -> list[Finding]:
    """Return the findings about this machine alone. Blocks."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    findings = [*java_findings(_java()), *descriptor_findings(-1 if soft == resource.RLIM_INFINITY else soft)]
    findings += memory_findings(read_memory())
    findings += storage_findings(try_storage(layout.storage, "high-availability.storageDir"))
    for place, purpose in (
        (layout.ha_blobs, "blob.storage.ha-directory"),
        (configuration[SAVEPOINT_DIRECTORY], SAVEPOINT_DIRECTORY.key),
    ):
        if place:
            findings += _place(place, purpose, layout.storage)
    directories = {layout.root: "emberkeep.state-dir", layout.storage: "high-availability.storageDir"}
    if configuration[WORKING_DIRECTORY]:
        directories[Path(configuration[WORKING_DIRECTORY])] = WORKING_DIRECTORY.key
    for path, purpose in directories.items():
        findings += disk_findings(read_disk(path, purpose))
    working = Path(configuration[WORKING_DIRECTORY] or layout.root)
    findings += path_findings(str(working), directories[working])
    return findings


def _place(location: str, purpose: str, storage: Path) -> list[Finding]:
    """Return the findings about a directory or an object store, unless it is in ``storage``. Blocks."""
    kind = scheme_of(location)
    if kind not in ("", "file", *OBJECT_STORES):
        what = f"{kind}: was not tried, because only Hadoop's file systems can use it"
        return [Finding(check="storage", where=purpose, severity=Severity.UNKNOWN, what=what)]
    try:
        directory = directory_at(location, purpose)
        if directory is not None:
            inside = directory.is_relative_to(storage)
            return [] if inside else storage_findings(try_storage(directory, purpose))
        try:
            from emberkeep.daemons.probes.object_store import try_object_store
        except ModuleNotFoundError as error:
            raise without_obstore(error, purpose) from None
        return object_store_findings(try_object_store(location, purpose))
    except Fatal as error:
        return [_failure("storage", purpose, error)]


def _java() -> JavaFacts:
    try:
        return JavaFacts(major=find_java(os.environ).major)
    except EmberkeepError as error:
        return JavaFacts(problem=error.message, hint=error.hint or "")


def _own_certificate(configuration: Configuration, layout: StateLayout) -> list[Finding]:
    """Return the findings about this machine's certificate, which `cluster up` makes if there is none. Blocks."""
    path = layout.tls_files.certificate
    if _is_missing(Path(path)) and Path(path).is_relative_to(layout.tls):
        what = "there is none yet: the first JobManager makes the CA, and a certificate"
        fix = "on further machines, copy what `emberkeep security bundle` makes on the first one"
        return [Finding(check="certificate", where=path, severity=Severity.UNKNOWN, what=what, fix=fix)]
    reached = (configuration[TASK_MANAGER_HOST],)
    return certificate_findings(read_certificate_file(path, reached), SystemClock().now_ms())


def _is_missing(path: Path) -> bool:
    """True if the file certainly does not exist. What this user may not look at is there, and cannot be read."""
    try:
        return not path.exists()
    except OSError:
        return False


async def _zookeeper(configuration: Configuration, layout: StateLayout, seen: _Seen) -> list[Finding]:
    try:
        # Before the first start there is no token. It only signs the record that is tried, so any will do.
        is_new = await asyncio.to_thread(_is_missing, layout.token_file)
        token = secrets.token_hex(32) if is_new else await asyncio.to_thread(read_token, layout.token_file)
        facts, clock = await look_at_zookeeper(session_settings(configuration, token), zookeeper_layout(configuration))
    except EmberkeepError as error:
        return [_failure("zookeeper", "high-availability.zookeeper.*", error)]
    seen.clocks += [clock] if clock is not None else []
    seen.releases = facts.releases
    return zookeeper_findings(facts)


def _cluster(configuration: Configuration, url: str | None) -> tuple[Endpoint | None, list[Finding]]:
    try:
        return find_cluster(configuration, os.environ, url), []
    except InvalidInput as error:
        if error.field != REST_PORT.key:
            raise
        return None, []  # any free port, which a cluster announces when it is started
    except EmberkeepError as error:
        return None, [_failure("cluster", "client", error)]


def _future_ports(configuration: Configuration) -> list[Finding]:
    """Return whether a JobManager and a task manager could listen where they are configured to. None runs yet."""
    findings, host = [], configuration[REST_BIND_ADDRESS]
    for announced, bound in ((REST_PORT, REST_BIND_PORT), (SPARK_UI_PORT, SPARK_UI_BIND_PORT)):
        option = bound if configuration[bound] else announced
        if port := configuration[option]:
            findings += port_findings(look_at_free_port(host, port, f"the JobManager: rest.bind-address, {option.key}"))
    if configuration.origin(TASK_MANAGER_HOST) != "default":
        findings += port_findings(look_at_free_port(configuration[TASK_MANAGER_HOST], 0, TASK_MANAGER_HOST.key))
    return findings


async def _running(
    endpoint: Endpoint, configuration: Configuration, seen: _Seen, *, expected: bool
) -> tuple[bool, list[Finding]]:
    """Return whether a JobManager answers, and the findings about the cluster as seen from this machine."""
    ca = endpoint.ca if endpoint.url.startswith("https:") else None
    turn = asyncio.Semaphore(_AT_ONCE)

    async def see(host: str, port: int, owner: str, *, expected: bool = True) -> ServerSight:
        async with turn:
            sight = await look_at(host, port, owner, ca)
        return msgspec.structs.replace(sight, port=msgspec.structs.replace(sight.port, expected=expected))

    urls = [urlsplit(each) for each in (endpoint.url, *endpoint.others)]
    sights = await asyncio.gather(
        *(
            see(url.hostname or "", url.port or (80 if ca is None else 443), "JobManager", expected=expected)
            for url in urls
        )
    )
    if spark_ui_port := configuration[SPARK_UI_PORT]:  # 0: any free port is taken, which is not known here
        answering = [url for url, sight in zip(urls, sights, strict=True) if sight.port.state is PortState.ANSWERS]
        owner = f"JobManager: {SPARK_UI_PORT.key}"
        sights += await asyncio.gather(*(see(url.hostname or "", spark_ui_port, owner) for url in answering))
    findings = _judged(sights, seen)
    if not any(sight.port.state is PortState.ANSWERS for sight in sights):
        return False, findings
    return True, [*findings, *await _nodes_of(endpoint, configuration, see, seen)]


async def _nodes_of(endpoint: Endpoint, configuration: Configuration, see: See, seen: _Seen) -> list[Finding]:
    """Return the findings about what the leader reports, and about the task managers and their addresses."""
    try:
        async with RestClient(endpoint) as client:
            overview, task_managers = await client.overview(), await client.task_managers()
            # A single JobManager has no successor with other settings.
            settings = await client.settings() if configuration[HA_TYPE] == "zookeeper" else []
    except NotAuthorised as error:
        what = f"nodes are not looked at: {error.message}"
        fix = "use a token with the role viewer or more, and without a namespace"
        return [Finding(check="cluster", where=endpoint.url, severity=Severity.UNKNOWN, what=what, fix=fix)]
    except EmberkeepError as error:
        return [_failure("cluster", endpoint.url, error)]
    own = overview.emberkeep
    addresses = [each.path.rpartition(":") for each in task_managers]
    sights = await asyncio.gather(
        *(
            see(host.strip("[]"), int(port), f"task manager {each.id}")
            for each, (host, _, port) in zip(task_managers, addresses, strict=True)
        )
    )
    findings = _judged(sights, seen)
    for problem in (own.problem, own.blocklist_problem, own.storage_problem):
        if problem:
            findings.append(Finding(check="cluster", where=own.job_manager, severity=Severity.ERROR, what=problem))
    findings += _nodes(task_managers)
    findings += _lease(configuration, f"JobManager {own.job_manager}", settings)
    leader = NodeVersions(where=f"JobManager {own.job_manager}", emberkeep=own.version)
    standbys = versions_of_standbys(seen.releases, own.job_manager)
    versions = version_findings(versions_here(), leader, [versions_of(each) for each in task_managers], standbys)
    return [*findings, *versions]


def _judged(sights: Sequence[ServerSight], seen: _Seen) -> list[Finding]:
    findings = []
    for sight in sights:
        findings += port_findings(sight.port)
        if sight.certificate is not None:
            findings += certificate_findings(sight.certificate, SystemClock().now_ms())
        if sight.clock is not None:
            seen.clocks.append(sight.clock)
    return findings


def _nodes(task_managers: Sequence[TaskManagerSummary]) -> list[Finding]:
    """Return the findings about the free disk space and the control groups that task managers report."""
    findings = []
    for each in task_managers:
        where = f"node {each.emberkeep.node_id}, working directory of {each.id}"
        findings += disk_findings(DiskFacts(where=where, free=each.emberkeep.disk_free_mb * _MIB))
        findings += cgroup_findings(f"node {each.emberkeep.node_id}, {each.id}", each.emberkeep.cgroups)
    return findings


def _lease(configuration: Configuration, leader: str, settings: Sequence[ConfigurationEntry]) -> list[Finding]:
    key = DRIVER_LEASE.key
    leases = [float(each.value) for each in settings if each.key == key]
    facts = [LeaseFacts(option=key, where=leader, here=configuration[DRIVER_LEASE], leader=lease) for lease in leases]
    return [finding for each in facts for finding in lease_findings(each)]


def _failure(check: str, where: str, error: EmberkeepError) -> Finding:
    return Finding(check=check, where=where, severity=Severity.ERROR, what=error.message, fix=error.hint or "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
