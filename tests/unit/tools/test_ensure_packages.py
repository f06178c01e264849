"""The checks for programs of packages: silent where there is one, fetch one where they may, else say what to do."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[3] / "tools"


@dataclass(frozen=True)
class Check:
    """A script, the package that it installs, and the program that it looks for."""

    script: Path
    package: str
    program: str


@pytest.fixture(
    params=[
        Check(TOOLS / "ensure-chromium.sh", "chromium", "chromium"),
        Check(TOOLS / "ensure-slurm.sh", "slurm-wlm", "slurmctld"),
    ],
    ids=lambda check: check.package,
)
def check(request: pytest.FixtureRequest) -> Check:
    found: Check = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH that has the tools the scripts need, but no such program, no package manager and no root."""
    for tool in ("bash", "env", "cp"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    program(tmp_path / "id", "echo 1000")
    return tmp_path


def program(path: Path, body: str) -> None:
    path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
    path.chmod(0o755)


def run(check: Check, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [check.script], check=False, capture_output=True, text=True, env={"PATH": str(path)}, timeout=30
    )


def test_nothing_is_said_where_there_is_one(check: Check, path: Path) -> None:
    program(path / check.program, "exit 0")
    done = run(check, path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_who_may_not_install_is_told_what_to_do(check: Check, path: Path) -> None:
    program(path / "apt-get", f"cp {path}/id {path}/{check.program}")
    program(path / "sudo", "exit 1")
    done = run(check, path)
    assert done.returncode == 1
    assert f"sudo apt-get install {check.package}" in done.stderr


@pytest.mark.parametrize(("install", "code"), [("cp {0}/id {0}/{1}", 0), ("exit 100", 1), ("exit 0", 1)])
def test_root_gets_one_or_is_told_what_to_do(check: Check, path: Path, install: str, code: int) -> None:
    program(path / "id", "echo 0")
    program(path / "apt-get", install.format(path, check.program))
    done = run(check, path)
    assert done.returncode == code, done.stderr
    assert (f"apt-get install {check.package}" in done.stderr) is bool(code)


@pytest.fixture
def unpacking(path: Path) -> Path:
    """A PATH that can also download a package, which has a promtool, and unpack it."""
    for tool in ("mktemp", "rm", "tar", "install", "mv", "chmod", "mkdir", "cat"):
        (path / tool).symlink_to(str(shutil.which(tool)))
    (path / "package" / "usr" / "bin").mkdir(parents=True)
    program(path / "package" / "usr" / "bin" / "promtool", "echo checked")
    program(path / "apt-get", "case $* in *download*) : >prometheus_1_amd64.deb ;; *) exit 1 ;; esac")
    program(path / "dpkg-deb", f"tar -C {path}/package -c ./usr/bin/promtool")
    (path / "target").mkdir()
    return path


def ensure_promtool(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOLS / "ensure-promtool.sh", path / "target"],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": str(path)},
        timeout=30,
    )


def test_promtool_is_taken_out_of_its_package_once(unpacking: Path) -> None:
    assert ensure_promtool(unpacking).returncode == 0
    found = unpacking / "target" / "promtool"
    assert subprocess.check_output([found], text=True) == "checked\n"
    done = ensure_promtool(unpacking)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_promtool_on_the_path_is_enough(unpacking: Path) -> None:
    program(unpacking / "promtool", "exit 0")
    assert ensure_promtool(unpacking).stdout == ""
    assert list((unpacking / "target").iterdir()) == []


@pytest.mark.parametrize(("tool", "body"), [("apt-get", "exit 100"), ("dpkg-deb", "exit 2")])
def test_without_its_package_it_is_said_where_promtool_comes_from(unpacking: Path, tool: str, body: str) -> None:
    program(unpacking / tool, body)
    done = ensure_promtool(unpacking)
    assert done.returncode == 1
    assert "Debian's package prometheus" in done.stderr
    assert list((unpacking / "target").iterdir()) == []


def ensure_rsyslog(path: Path) -> subprocess.CompletedProcess[str]:
    command = [TOOLS / "ensure-rsyslog.sh", path / "rsyslog"]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={"PATH": str(path)}, timeout=30)


@pytest.fixture
def unpacking_all(path: Path) -> Path:
    """A PATH that can also download packages, and unpack all of each."""
    for tool in ("mktemp", "rm", "mv", "cp", "mkdir"):
        if not (path / tool).exists():
            (path / tool).symlink_to(str(shutil.which(tool)))
    program(path / "apt-get", "case $* in *download*) : >rsyslog_8_amd64.deb ;; *) exit 1 ;; esac")
    program(path / "dpkg-deb", 'mkdir -p "$3/usr/sbin"; cp "$0" "$3/usr/sbin/rsyslogd"')
    return path


@pytest.mark.skipif(Path("/usr/sbin/rsyslogd").exists(), reason="there is a real one")
def test_rsyslog_is_taken_out_of_its_packages_once(unpacking_all: Path) -> None:
    assert ensure_rsyslog(unpacking_all).returncode == 0
    assert (unpacking_all / "rsyslog" / "usr" / "sbin" / "rsyslogd").exists()
    done = ensure_rsyslog(unpacking_all)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(Path("/usr/sbin/rsyslogd").exists(), reason="there is a real one")
@pytest.mark.parametrize(("tool", "body"), [("apt-get", "exit 100"), ("dpkg-deb", "exit 2")])
def test_without_its_packages_it_is_said_where_rsyslog_comes_from(unpacking_all: Path, tool: str, body: str) -> None:
    program(unpacking_all / tool, body)
    done = ensure_rsyslog(unpacking_all)
    assert done.returncode == 1
    assert "apt-get install rsyslog" in done.stderr
    assert not (unpacking_all / "rsyslog").exists()


def ensure_guest(path: Path) -> subprocess.CompletedProcess[str]:
    command = [TOOLS / "ensure-guest.sh", path / "guest"]
    return subprocess.run(command, check=False, capture_output=True, text=True, env={"PATH": str(path)}, timeout=30)


def test_nothing_is_said_where_the_parts_of_a_virtual_machine_are(path: Path) -> None:
    program(path / "qemu-system-x86_64", "exit 0")
    (path / "guest" / "boot").mkdir(parents=True)
    done = ensure_guest(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("has_qemu", [True, False])
def test_without_packages_it_is_said_what_a_virtual_machine_needs(path: Path, *, has_qemu: bool) -> None:
    if has_qemu:
        program(path / "qemu-system-x86_64", "exit 0")
    done = ensure_guest(path)
    assert done.returncode == 1
    assert "apt-get install qemu-system-x86" in done.stderr
    assert not (path / "guest").exists()
