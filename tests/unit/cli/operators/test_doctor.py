"""``emberkeep doctor`` against a JobManager's API, and before there is a cluster."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import msgspec
import pytest
import yaml

from emberkeep.base.processes.process_identity import own_identity
from emberkeep.cli.application import main
from emberkeep.client.clusters.cluster_file import ClusterRecord, ClusterShape, DaemonRecord, write_cluster
from tests.unit.client.fake_job_manager import FakeJobManager, task_manager_info

Output = pytest.CaptureFixture[str]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: FakeJobManager) -> Path:
    """A machine without a cluster, with a storage, and with a Java of sorts."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    assert fake.url == os.environ["EMBERKEEP_URL"]
    monkeypatch.delenv("EMBERKEEP_URL")
    (tmp_path / "storage").mkdir()
    monkeypatch.setenv("EMBERKEEP_HIGH_AVAILABILITY__STORAGEDIR", str(tmp_path / "storage"))
    return tmp_path


def findings(capfd: Output) -> dict[str, list[str]]:
    """The checks of a report as JSON, with the severities of each."""
    report = json.loads(capfd.readouterr().out)
    assert report["version"] == 1
    found: dict[str, list[str]] = {}
    for finding in report["findings"]:
        found.setdefault(finding["check"], []).append(finding["severity"])
    return found


@pytest.mark.usefixtures("alone")
def test_a_machine_is_examined_before_there_is_a_cluster(capfd: Output) -> None:
    words = ["doctor", "-D", f"high-availability.storageDir={Path.cwd() / 'none'}", "-D", "rest.port=0"]
    assert main([*words, "-o", "json"]) == 0
    found = findings(capfd)
    assert found["java"] == ["ok"]
    assert set(found) == {"java", "descriptors", "storage", "disk", "memory"}


def test_what_python_prints_as_it_starts_is_not_the_report(
    alone: Path, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    (alone / "sitecustomize.py").write_text("print('welcome')")
    monkeypatch.setenv("PYTHONPATH", str(alone))
    assert main(["doctor", "-D", "rest.port=0", "-o", "json"]) == 0
    assert findings(capfd)["java"] == ["ok"]


def test_what_is_wrong_comes_with_its_fix_and_an_exit_code(alone: Path, capfd: Output) -> None:
    file = alone / "a file"
    file.write_text("no directory")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["doctor", "-D", f"high-availability.storageDir={file}", "-D", f"rest.port={port}"]
        assert main([*words, "-D", "rest.address=127.0.0.1"]) == 1
    lines = capfd.readouterr().out.splitlines()
    problem = next(line for line in lines if line.startswith("ERROR    storage"))
    assert f"{file} (high-availability.storageDir): cannot create a file: Not a directory" in problem
    assert lines[lines.index(problem) + 1].startswith(
        "         fix: let the user of the cluster's processes write there"
    )
    assert not any(line.startswith("OK ") for line in lines)


@pytest.mark.usefixtures("alone")
def test_a_java_that_is_missing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    assert main(["doctor", "-D", "rest.port=0", "-o", "json"]) == 1
    assert findings(capfd)["java"] == ["error"]


@pytest.mark.usefixtures("alone")
def test_a_running_cluster_is_looked_at(fake: FakeJobManager, capfd: Output) -> None:
    gone = task_manager_info("tm-1")
    older = msgspec.structs.replace(gone.emberkeep, version="0.0.1")
    fake.task_managers = [msgspec.structs.replace(gone, path="127.0.0.1:1", emberkeep=older)]
    assert main(["doctor", "--url", fake.url, "--output", "yaml"]) == 1
    report = yaml.safe_load(capfd.readouterr().out)
    seen = {(each["check"], each["where"].partition(" (")[0], each["severity"]) for each in report["findings"]}
    address = fake.url.removeprefix("http://")
    assert ("port", address, "ok") in seen
    assert ("clock", address, "ok") in seen
    assert ("port", "127.0.0.1:1", "error") in seen
    versions = [each["what"] for each in report["findings"] if each["check"] == "versions"]
    assert any(what.startswith("Emberkeep 0.0.1; JobManager ") for what in versions)


def test_a_machine_of_a_cluster_that_does_not_encrypt_needs_no_certificate(
    alone: Path, fake: FakeJobManager, capfd: Output
) -> None:
    encrypting = ["doctor", "-D", "security.encryption=tls", "-o", "json"]
    main([*encrypting, "-D", "rest.port=0"])
    assert findings(capfd)["certificate"] == ["unknown"], "nothing runs yet"
    state = Path(os.environ["EMBERKEEP_STATE_DIR"])
    record = ClusterRecord(
        url=fake.url,
        token_file=str(state / "token"),
        shape=ClusterShape(nodes=(), slots=1, memory="", definitions=()),
        job_manager=DaemonRecord(name="jobmanager", identity=own_identity(), directory=str(alone)),
        task_managers=(),
    )
    write_cluster(state / "cluster.json", record)
    main(encrypting)
    found = findings(capfd)
    assert found["port"] == ["ok"]
    assert "certificate" not in found


@pytest.mark.parametrize(("here", "severity"), [("20s", "ok"), ("1min", "warning")])
@pytest.mark.usefixtures("alone")
def test_the_lease_is_compared_with_the_leaders(fake: FakeJobManager, capfd: Output, here: str, severity: str) -> None:
    fake.config = [("rest.port", "1"), ("job.driver.lease-timeout", "20.0")]
    settings = {"type": "zookeeper", "zookeeper.quorum": "127.0.0.1:1"}
    words = [word for name, value in settings.items() for word in ("-D", f"high-availability.{name}={value}")]
    main(["doctor", "--url", fake.url, *words, "-D", f"job.driver.lease-timeout={here}", "-o", "json"])
    assert findings(capfd)["settings"] == [severity]


@pytest.mark.usefixtures("alone")
def test_a_cluster_that_is_named_and_does_not_answer_is_an_error(capfd: Output) -> None:
    assert main(["doctor", "--url", "http://127.0.0.1:1", "-o", "json"]) == 1
    assert findings(capfd)["port"] == ["error"]


@pytest.mark.usefixtures("alone")
def test_a_cluster_in_the_configuration_may_not_be_started_yet(capfd: Output) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert main(["doctor", "-D", f"rest.port={port}", "-o", "json"]) == 0
    assert findings(capfd)["port"] == ["warning", "ok"]


def test_the_port_of_the_spark_uis_is_tried_as_well(
    fake: FakeJobManager, monkeypatch: pytest.MonkeyPatch, capfd: Output
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        words = ["doctor", "-D", f"rest.spark-ui.port={taken.getsockname()[1]}", "-o", "json"]
        assert main(words) == 1, "a firewall, say: the JobManager answers, and nothing at this port"
        assert findings(capfd)["port"] == ["ok", "error"]

        monkeypatch.delenv("EMBERKEEP_URL")
        assert main([*words, "-D", "rest.port=0"]) == 1
        assert findings(capfd)["port"] == ["error"]


@pytest.mark.usefixtures("alone")
def test_a_wrong_setting_is_a_usage_error(capfd: Output) -> None:
    assert main(["doctor", "-D", "taskmanager.numberOfTaskSlots=many"]) == 2
    assert "taskmanager.numberOfTaskSlots" in capfd.readouterr().err


@pytest.mark.usefixtures("alone")
def test_an_address_that_looks_like_an_option_is_looked_at(capfd: Output) -> None:
    assert main(["doctor", "--url=-x"]) == 1
    assert "ERROR    port: -x:" in capfd.readouterr().out


@pytest.mark.parametrize("options", [(), ("-D", "high-availability.type=zookeeper")])
def test_a_state_directory_that_cannot_be_looked_at_is_a_finding(
    alone: Path, capfd: Output, options: tuple[str, ...]
) -> None:
    # Its name is too long. That of another user fails likewise, except for root.
    state, config = alone / ("x" * 300), alone / "c.yaml"
    config.write_text("")
    words = ["doctor", "--config", str(config), "-D", f"emberkeep.state-dir={state}", "-D", "rest.port=0"]
    words += ["-D", "security.encryption=tls", *options]
    if options:
        words += ["-D", "high-availability.zookeeper.quorum=127.0.0.1:1", "-D", f"security.token-file={state}/token"]
    assert main([*words, "-o", "json"]) == 1
    errors = [each for each in json.loads(capfd.readouterr().out)["findings"] if each["severity"] == "error"]
    told = "\n".join(f"{each['where']}: {each['what']}" for each in errors)
    assert "node.pem: cannot be read: File name too long" in told
    assert f"cannot read {state / 'cluster.json'}: File name too long" in told
    assert not options or f"cannot read the token file {state}/token: File name too long" in told


def test_a_damaged_record_of_the_cluster_is_a_finding(alone: Path, capfd: Output) -> None:
    state = alone / "own"
    state.mkdir()
    (state / "cluster.json").write_bytes(b"{")
    assert main(["doctor", "-D", f"emberkeep.state-dir={state}", "-D", "rest.port=0", "-o", "json"]) == 1
    report = json.loads(capfd.readouterr().out)
    assert any("cluster.json" in each["what"] for each in report["findings"] if each["severity"] == "error")
