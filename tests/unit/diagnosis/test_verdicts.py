"""What follows from facts about clocks, storage, ZooKeeper, certificates, addresses, versions and the machine."""

from __future__ import annotations

import msgspec
import pytest

from emberkeep.diagnosis.certificates import CertificateFacts, certificate_findings, covers
from emberkeep.diagnosis.clocks import ClockReading, clock_findings
from emberkeep.diagnosis.machine import (
    DiskFacts,
    JavaFacts,
    MemoryFacts,
    cgroup_findings,
    descriptor_findings,
    disk_findings,
    java_findings,
    memory_findings,
    path_findings,
)
from emberkeep.diagnosis.model import Finding, Report, Severity, gravest_first
from emberkeep.diagnosis.network import PortFacts, PortState, port_findings
from emberkeep.diagnosis.object_store import ObjectProblem, ObjectStep, ObjectStoreFacts, object_store_findings
from emberkeep.diagnosis.settings import LeaseFacts, lease_findings
from emberkeep.diagnosis.storage import Step, StorageFacts, storage_findings
from emberkeep.diagnosis.versions import NodeVersions, version_findings
from emberkeep.diagnosis.zookeeper import ServerFacts, ZooKeeperFacts, zookeeper_findings

OK, UNKNOWN, WARNING, ERROR = Severity
DAY = 86_400_000
MIB = 1024**2


def severities(findings: list[Finding]) -> list[Severity]:
    assert all(finding.fix for finding in findings if finding.severity in (WARNING, ERROR))
    assert not any(finding.fix for finding in findings if finding.severity is OK)
    return [finding.severity for finding in findings]


@pytest.mark.parametrize(
    ("least", "most", "severity"),
    [
        (-1000, 1000, OK),
        (4_999, 6_000, OK),
        (5_000, 6_000, WARNING),
        (-6_000, -5_000, WARNING),
        (59_999, 60_500, WARNING),
        (60_000, 61_000, ERROR),
        (-70_000, 0, OK),  # a slow reply proves nothing
    ],
)
def test_a_clock_is_judged_by_the_difference_that_is_certain(least: int, most: int, severity: Severity) -> None:
    assert severities(clock_findings([ClockReading("node-7", least, most)])) == [severity]


def test_if_all_clocks_differ_alike_this_machines_is_wrong() -> None:
    (finding,) = clock_findings([ClockReading("a", 90_000, 91_000), ClockReading("b", 89_000, 92_000)])
    assert finding.where == "this machine"
    assert finding.what == "this machine's clock is at least 89 s behind those of all 2 servers"
    apart = [ClockReading("a", 90_000, 91_000), ClockReading("b", -92_000, -89_000)]
    assert [finding.where for finding in clock_findings(apart)] == ["a", "b"]
    one = [ClockReading("a", 90_000, 91_000), ClockReading("b", -100, 900)]
    assert severities(clock_findings(one)) == [ERROR, OK]


@pytest.mark.parametrize("step", Step)
def test_a_step_that_fails_is_named_with_what_is_needed(step: Step) -> None:
    (finding,) = storage_findings(StorageFacts(path="/s", purpose="storage", failed=step, reason="no"))
    assert finding.severity is ERROR
    assert finding.what == f"cannot {step.value}: no"
    assert finding.where == "/s (storage)"
    assert finding.fix


@pytest.mark.parametrize(
    ("facts", "severity"),
    [
        (StorageFacts(path="/s", purpose="p", file_system="ext4"), OK),
        (StorageFacts(path="/s", purpose="p", file_system=""), OK),
        (StorageFacts(path="/s", purpose="p", file_system="tmpfs"), WARNING),
        (StorageFacts(path="/s", purpose="p", file_system="overlay"), WARNING),
        (StorageFacts(path="/s", purpose="p", missing=True), UNKNOWN),
        (StorageFacts(path="/s", purpose="p", missing=True, parent_writable=False), ERROR),
    ],
)
def test_storage(facts: StorageFacts, severity: Severity) -> None:
    assert severities(storage_findings(facts)) == [severity]


@pytest.mark.parametrize("step", ObjectStep)
def test_each_step_in_an_object_store_has_advice_that_the_stores_own_error_replaces(step: ObjectStep) -> None:
    own = ObjectProblem(step=step, reason="no")
    told = ObjectProblem(step=step, reason="no", hint="pay the bill")
    facts = ObjectStoreFacts(location="s3://b", purpose="blobs", problems=(own, told))
    first, second = object_store_findings(facts)
    conditional = step in (ObjectStep.CREATE_ONCE, ObjectStep.COPY_ONCE)
    assert first.severity is (Severity.WARNING if conditional else Severity.ERROR)
    assert (first.where, first.what) == ("s3://b (blobs)", f"cannot {step.value}: no")
    assert first.fix
    assert second.fix == "pay the bill"


def test_a_good_object_store() -> None:
    (finding,) = object_store_findings(ObjectStoreFacts(location="s3://b", purpose="blobs"))
    assert (finding.severity, finding.what) == (Severity.OK, "all 9 steps work")


def zookeeper(*servers: tuple[str, int], record: str | None = "") -> list[Severity]:
    facts = ZooKeeperFacts(
        servers=tuple(
            ServerFacts(where=f"z{number}", problem=problem, granted_ms=granted)
            for number, (problem, granted) in enumerate(servers)
        ),
        wanted_ms=6000,
        record_bytes=589_824,
        record_problem=record,
    )
    return severities(zookeeper_findings(facts))


def test_zookeeper() -> None:
    answers, silent = ("", 6000), ("refused", 0)
    assert zookeeper(answers) == [OK, OK]
    assert zookeeper(answers, answers, answers) == [OK, OK, OK, OK]
    assert zookeeper(answers, answers, silent) == [OK, OK, WARNING, OK]
    assert zookeeper(answers, silent, silent, record=None) == [OK, WARNING, WARNING, ERROR]
    assert zookeeper(answers, answers) == [OK, OK, WARNING, OK]  # an even number
    assert zookeeper(("", 4000)) == [WARNING, OK]
    assert zookeeper(answers, record="connection lost") == [OK, ERROR]


@pytest.mark.parametrize(("most", "severity"), [(None, OK), (0, OK), (60, OK), (20, OK), (19, WARNING)])
def test_zookeeper_must_take_the_connections_of_a_machine(most: int | None, severity: Severity) -> None:
    facts = ZooKeeperFacts(servers=(ServerFacts(where="z", granted_ms=6000, connections=most),), wanted_ms=6000)
    found = zookeeper_findings(facts)
    assert severities(found) == [severity]
    assert ("maxClientCnxns" in found[0].what) is (severity is WARNING)


@pytest.mark.parametrize(("here", "severity"), [(20.0, OK), (6.0, WARNING), (40.0, WARNING)])
def test_job_managers_have_one_lease(here: float, severity: Severity) -> None:
    facts = LeaseFacts(option="job.driver.lease-timeout", where="JobManager a:1", here=here, leader=20.0)
    found = lease_findings(facts)
    assert severities(found) == [severity]
    assert "20 s" in found[0].what
    assert ("-D job.driver.lease-timeout=20s" in found[0].fix) is (severity is WARNING)


def test_a_session_that_is_cut_names_the_servers_bound() -> None:
    def fix(granted: int) -> str:
        facts = ZooKeeperFacts(servers=(ServerFacts(where="z", granted_ms=granted),), wanted_ms=6000)
        return zookeeper_findings(facts)[0].fix

    assert "maxSessionTimeout" in fix(4000)
    assert "minSessionTimeout" in fix(8000)


VALID = CertificateFacts(where="c", begins_ms=0, ends_ms=100 * DAY, names=("node-7", "10.0.0.7"), reached=("node-7",))


@pytest.mark.parametrize(
    ("changes", "now", "expected"),
    [
        ({}, DAY, [OK]),
        ({}, 85 * DAY, [OK]),
        ({}, 87 * DAY, [WARNING]),
        ({}, 100 * DAY, [ERROR]),
        ({"begins_ms": 2 * DAY}, DAY, [ERROR]),
        ({"reached": ("node-7", "NODE-7", "10.0.0.7")}, DAY, [OK]),
        ({"reached": ("node-8",)}, DAY, [ERROR]),
        ({"names": ()}, DAY, [ERROR]),
        ({"trusted": False, "reason": "unknown CA"}, DAY, [ERROR]),
        ({"problem": "cannot be read: no such file"}, DAY, [ERROR]),
        ({"reached": ("node-8",), "trusted": False}, 99 * DAY, [WARNING, ERROR, ERROR]),
    ],
)
def test_certificates(changes: dict[str, object], now: int, expected: list[Severity]) -> None:
    assert severities(certificate_findings(msgspec.structs.replace(VALID, **changes), now)) == expected


def test_what_a_certificate_proves() -> None:
    assert covers("*.example", "node.example")
    assert not covers("*.example", "a.node.example")
    assert not covers("*.example", ".example")
    assert not covers("node.example", "other.example")
    assert covers("::1", "[::1]")


@pytest.mark.parametrize(
    ("free", "severity"), [(256 * MIB - 1, ERROR), (256 * MIB, WARNING), (2048 * MIB - 1, WARNING), (2048 * MIB, OK)]
)
def test_free_space(free: int, severity: Severity) -> None:
    assert severities(disk_findings(DiskFacts(where="/s", free=free))) == [severity]


def test_space_that_cannot_be_read_is_not_taken_for_none() -> None:
    (finding,) = disk_findings(DiskFacts(where="/s", free=None, problem="no reply"))
    assert finding.severity is UNKNOWN


@pytest.mark.parametrize(
    ("free", "severity"), [(128 * MIB - 1, ERROR), (128 * MIB, WARNING), (2048 * MIB - 1, WARNING), (2048 * MIB, OK)]
)
def test_free_memory(free: int, severity: Severity) -> None:
    assert severities(memory_findings(MemoryFacts(free=free))) == [severity]


def test_memory_that_cannot_be_read_is_not_taken_for_none() -> None:
    (finding,) = memory_findings(MemoryFacts(free=None, problem="too many open files"))
    assert finding.severity is UNKNOWN


@pytest.mark.parametrize(("soft", "severity"), [(1023, ERROR), (1024, WARNING), (4095, WARNING), (4096, OK), (-1, OK)])
def test_descriptors(soft: int, severity: Severity) -> None:
    assert severities(descriptor_findings(soft)) == [severity]


def test_control_groups_are_what_a_task_manager_reports() -> None:
    (finding,) = cgroup_findings("node a", "version 2: CPU by cores")
    assert (finding.severity, finding.where, finding.what) == (OK, "node a", "version 2: CPU by cores")
    assert cgroup_findings("node a", "") == []


def test_paths_that_rocksdb_cannot_open() -> None:
    assert path_findings("/hö me/'q'/日本", "x") == []
    assert severities(path_findings("/home/🔥/state", "x")) == [WARNING]


def test_java() -> None:
    assert severities(java_findings(JavaFacts(major=17))) == [OK]
    assert severities(java_findings(JavaFacts(problem="there is none", hint="install one"))) == [ERROR]


@pytest.mark.parametrize(
    ("state", "severity"),
    [
        (PortState.ANSWERS, OK),
        (PortState.FREE, OK),
        (PortState.TAKEN, ERROR),
        (PortState.NOT_HERE, ERROR),
        (PortState.UNKNOWN_NAME, ERROR),
        (PortState.SILENT, ERROR),
    ],
)
def test_addresses(state: PortState, severity: Severity) -> None:
    assert severities(port_findings(PortFacts(where="h:1", owner="JobManager", state=state))) == [severity]


def test_a_server_that_may_not_be_started_yet_is_no_error() -> None:
    facts = PortFacts(where="h:1", owner="JobManager", state=PortState.SILENT, reason="refused", expected=False)
    (finding,) = port_findings(facts)
    assert finding.severity is WARNING
    assert finding.fix.startswith("nothing to do if it is not started yet")


HERE = NodeVersions(where="here", emberkeep="1", python="3.11", spark="4.3.0")


def node(python: str = "3.11", java: int = 17, emberkeep: str = "") -> NodeVersions:
    return NodeVersions(where="node", emberkeep=emberkeep, python=python, spark="4.3.0", java=java)


def test_versions() -> None:
    leader = NodeVersions(where="leader", emberkeep="1")
    newer = NodeVersions(where="leader", emberkeep="2")
    assert severities(version_findings(HERE, leader, [node(), node()])) == [OK, OK, OK]
    assert severities(version_findings(HERE, newer, [node()])) == [WARNING, OK]
    assert severities(version_findings(HERE, leader, [node(), node("3.12")])) == [OK, OK, WARNING]
    assert severities(version_findings(HERE, leader, [node("3.12"), node("3.12")])) == [OK, ERROR, ERROR]
    assert severities(version_findings(HERE, None, [node(), node(java=21)])) == [OK, OK, WARNING]
    assert severities(version_findings(HERE, leader, [node(emberkeep="1"), node(emberkeep="2")])) == [
        *(OK, OK, OK),
        WARNING,
    ]
    assert version_findings(HERE, leader, [node(emberkeep="2")])[2].what == "Emberkeep 2; leader has 1"
    assert "this machine has Python 3.11" in version_findings(HERE, None, [node("3.12")])[0].what


def test_a_job_manager_that_stands_by_must_have_the_leaders_release() -> None:
    leader = NodeVersions(where="leader", emberkeep="1")
    standbys = [NodeVersions(where=f"standby {each}", emberkeep=each) for each in ("1", "2", "")]
    found = version_findings(HERE, leader, [], standbys)
    assert severities(found) == [OK, OK, WARNING, WARNING]
    assert [finding.what for finding in found[2:]] == [
        "Emberkeep 2; leader has 1",
        "an old release of Emberkeep, which does not report its version; leader has 1",
    ]
    assert all(finding.fix.startswith("finish the upgrade") for finding in found[2:])


def test_a_report_is_as_bad_as_its_worst_finding() -> None:
    def finding(severity: Severity, where: str = "x") -> Finding:
        return Finding(check="c", where=where, severity=severity, what="w")

    found = [finding(OK), finding(WARNING, "1"), finding(ERROR), finding(WARNING, "2"), finding(UNKNOWN)]
    assert Report(findings=found).worst is ERROR
    assert Report(findings=[finding(OK), finding(UNKNOWN)]).worst is UNKNOWN
    assert Report(findings=[]).worst is OK
    assert [each.severity for each in gravest_first(found)] == [ERROR, WARNING, WARNING, UNKNOWN, OK]
    assert [each.where for each in gravest_first(found)[1:3]] == ["1", "2"]
