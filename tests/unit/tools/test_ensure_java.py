"""The check for Java: silent with a good one, installs one where it may, else says what to do."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "ensure-java.sh"
TOOLS = ("bash", "env", "sed", "head", "cat")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH that has the tools the script needs, but no Java, no package manager and no root."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(str(shutil.which(tool)))
    program(folder / "id", "echo 1000")
    return folder


def program(path: Path, body: str) -> None:
    path.write_text(f"#!{shutil.which('bash')}\n{body}\n")
    path.chmod(0o755)


def java(path: Path, version: str) -> None:
    program(path, f"""echo 'openjdk version "{version}" 2025-01-01' >&2""")


def run(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPT], check=False, capture_output=True, text=True, env={"PATH": str(path), **environment}, timeout=30
    )


@pytest.mark.parametrize("version", ["17.0.15", "21", "25-ea"])
def test_new_enough_java_passes_in_silence(path: Path, version: str) -> None:
    java(path / "java", version)
    done = run(path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("version", "found"), [("1.8.0_442", "Java 8"), ("11.0.2", "Java 11"), (None, "none")])
def test_old_or_absent_java_is_explained(path: Path, version: str | None, found: str) -> None:
    if version is not None:
        java(path / "java", version)
    done = run(path)
    assert done.returncode == 1
    assert f"found: {found}" in done.stderr
    assert "apt-get install openjdk-17-jre-headless" in done.stderr


def test_java_home_goes_before_path(path: Path, tmp_path: Path) -> None:
    java(path / "java", "17.0.15")
    (tmp_path / "old" / "bin").mkdir(parents=True)
    java(tmp_path / "old" / "bin" / "java", "11.0.2")
    done = run(path, JAVA_HOME=str(tmp_path / "old"))
    assert done.returncode == 1
    assert f"JAVA_HOME={tmp_path / 'old'} holds no Java 17 or newer (found: 11)" in done.stderr


def apt_get(path: Path, log: Path, needs_update: bool) -> None:
    """An apt-get whose install brings a Java, where `needs_update` only after an update."""
    java(path / "packaged-java", "17.0.15")
    (path / "mv").symlink_to(str(shutil.which("mv")))
    install = f"mv {path}/packaged-java {path}/java"
    if needs_update:
        install = f'[[ "$(cat {log})" == *update* ]] && {install}'
    program(path / "apt-get", f'echo "$1" >> {log}\n[ "$1" = update ] || {{ {install}; }}')


@pytest.mark.parametrize(("needs_update", "calls"), [(False, ["install"]), (True, ["install", "update", "install"])])
def test_root_gets_java_installed(path: Path, tmp_path: Path, needs_update: bool, calls: list[str]) -> None:
    program(path / "id", "echo 0")
    apt_get(path, tmp_path / "log", needs_update)
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "log").read_text().split() == calls


def test_nothing_is_installed_where_sudo_asks_for_a_password(path: Path, tmp_path: Path) -> None:
    apt_get(path, tmp_path / "log", needs_update=False)
    program(path / "sudo", "exit 1")
    assert run(path).returncode == 1
    assert not (tmp_path / "log").exists()


def test_installation_that_brings_no_java_is_not_a_success(path: Path) -> None:
    program(path / "id", "echo 0")
    program(path / "apt-get", "exit 100")
    done = run(path)
    assert done.returncode == 1
    assert "Spark needs a Java 17+ runtime" in done.stderr
