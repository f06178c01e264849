"""``emberkeep system install``: its files, and what systemd's own tools think of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from emberkeep.base.configuration.options.directories import STATE_DIRECTORY
from emberkeep.base.configuration.sources import load_configuration
from emberkeep.cli.application import main

Output = pytest.CaptureFixture[str]

COMMAND = "/opt/emberkeep/bin/emberkeep"
HOME = "/home/operator"
UNITS = ("emberkeep-jobmanager.service", "emberkeep-taskmanager.service")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty machine that has only the command."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    command = tmp_path / "root" / COMMAND[1:]
    command.parent.mkdir(parents=True)
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    monkeypatch.setattr("sys.argv", [str(command)])
    return tmp_path / "root"


def install(root: Path, *options: str) -> int:
    return main(["system", "install", "--root", str(root), "--executable", COMMAND, *options])


def settings(root: Path, unit: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (root / "etc/systemd/system" / unit).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_a_stopped_service_leaves_what_it_has_started_as_it_is(root: Path) -> None:
    assert install(root) == 0
    for unit in UNITS:
        found = settings(root, unit)
        assert found["KillMode"] == ["process"]
        assert found["OOMPolicy"] == ["continue"]
        assert found["Restart"] == ["on-failure"], "one that was ended permanently stays ended"
        removed = {"PrivateTmp", "RuntimeDirectory", "RemoveIPC", "DynamicUser"}
        assert not {*removed, "MemoryDenyWriteExecute"} & found.keys()
    found = settings(root, UNITS[1])
    assert found["Delegate"] == ["cpu memory pids"]
    assert not {"ProtectProc", "ProcSubset", "ProtectControlGroups"} & found.keys()


def test_the_job_manager_may_write_to_its_storage_only(root: Path) -> None:
    assert install(root, "--role", "jobmanager", "--writable", "/mnt/a", "--writable", "/mnt/b") == 0
    found = settings(root, UNITS[0])
    assert found["ProtectSystem"] == ["strict"]
    assert found["ReadWritePaths"] == ["/var/lib/emberkeep", "-/mnt/a", "-/mnt/b"]
    assert not (root / "etc/systemd/system" / UNITS[1]).exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--executable", f"{HOME}/venv/bin/emberkeep"),
        ("--state-dir", f"{HOME}/emberkeep"),
        ("--writable", f"{HOME}/storage"),
    ],
)
def test_the_job_manager_sees_the_homes_that_it_needs_something_of(root: Path, options: tuple[str, str]) -> None:
    assert install(root) == 0
    assert settings(root, UNITS[0])["ProtectHome"] == ["yes"]
    assert main(["system", "install", "--root", str(root), "--replace", *options]) == 0
    assert settings(root, UNITS[0])["ProtectHome"] == ["read-only"]


def test_a_dry_run_prints_the_files_and_writes_none(root: Path, capfd: Output) -> None:
    assert install(root, "--dry-run") == 0
    out = capfd.readouterr().out
    for path in (*(f"/etc/systemd/system/{unit}" for unit in UNITS), "/etc/sysusers.d/emberkeep.conf"):
        assert f"### {path}\n" in out
    assert not (root / "etc").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--config", "/etc/emberkeep.yaml"),
        ("--config", "/emberkeep.yaml"),
        ("--config", "/etc/emberkeep/../emberkeep.yaml"),
        ("--config", "//etc/emberkeep.yaml"),
        ("--config", "/etc/default/emberkeep.yaml"),
        ("--state-dir", "/var/lib"),
        ("--state-dir", "/opt/./."),
    ],
)
def test_directories_of_the_operating_system_keep_their_owner_and_mode(
    root: Path, capfd: Output, options: tuple[str, str]
) -> None:
    assert install(root, *options) == 2
    assert f"{options[0]}: /" in capfd.readouterr().err
    assert not (root / "etc").exists()


def test_changed_files_are_not_replaced_unasked_and_the_configuration_never(root: Path, capfd: Output) -> None:
    assert install(root) == 0
    unit, config = root / "etc/systemd/system" / UNITS[0], root / "etc/emberkeep/config.yaml"
    assert install(root) == 0, "nothing to do"
    unit.write_text("mine")
    config.write_text("rest.port: 1\n")
    users = root / "etc/sysusers.d/emberkeep.conf"
    users.unlink()
    assert install(root) == 1
    assert f"{unit} differ" in capfd.readouterr().err
    assert not users.exists(), "nothing is written then"
    assert install(root, "--replace") == 0
    assert "[Service]" in unit.read_text()
    assert config.read_text() == "rest.port: 1\n"


@pytest.mark.parametrize(
    "options",
    [("--state-dir", "relative"), ("--config", "/etc/a b"), ("--user", "a;b"), ("--writable", "/mnt/%h\n[Install]")],
)
def test_what_systemd_would_read_differently_is_refused(root: Path, options: tuple[str, str]) -> None:
    assert install(root, *options) == 2
    assert not (root / "etc").exists()


def test_the_configuration_file_is_one(root: Path) -> None:
    assert install(root) == 0
    path = root / "etc/emberkeep/config.yaml"
    assert yaml.safe_load(path.read_text()) == {STATE_DIRECTORY.key: "/var/lib/emberkeep"}
    assert load_configuration(config_file=path, environ={}, definitions=())[STATE_DIRECTORY] == "/var/lib/emberkeep"
    assert path.stat().st_mode & 0o777 == 0o640


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
class TestSystemd:
    """What systemd's tools find."""

    def test_the_units_are_correct(self, root: Path) -> None:
        assert install(root) == 0
        done = run("systemd-analyze", "verify", "--root", root, "--recursive-errors=no", "--man=no", *UNITS)
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.parametrize(("unit", "most"), [(UNITS[0], 25), (UNITS[1], 35)])
    def test_the_units_are_hardened(self, root: Path, unit: str, most: int) -> None:
        """The exposure is at most this, in tenths: below 4 systemd calls it OK."""
        assert install(root) == 0
        done = run(
            *("systemd-analyze", "security", "--root", root, "--offline=yes"),
            *(f"--threshold={most}", "--no-pager", "--json=short", unit),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert any(check["json_field"] == "NoNewPrivileges" for check in json.loads(done.stdout))

    @pytest.mark.skipif(shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed")
    def test_user_and_directories_can_be_made(self, root: Path) -> None:
        assert install(root) == 0
        if run("systemd-sysusers", "--root", root).returncode:
            pytest.skip("users cannot be made here: not root")
        assert "emberkeep:x:" in (root / "etc/passwd").read_text()
        done = run("systemd-tmpfiles", "--root", root, "--create")
        assert (done.returncode, done.stderr) == (0, "")
        assert (root / "var/lib/emberkeep").stat().st_mode & 0o777 == 0o700


def test_by_default_the_units_start_the_command_that_wrote_them(root: Path, capfd: Output) -> None:
    command = root / COMMAND[1:]
    assert main(["system", "install", "--dry-run"]) == 0
    assert f"ExecStart={command} jobmanager" in capfd.readouterr().out
    command.chmod(0o644)
    assert main(["system", "install", "--dry-run"]) == 2, "a module, as with `python -m`"
    assert "--executable is missing" in capfd.readouterr().err
