"""The wheels and the source archives that a release publishes: what is in them, and that they can be made again."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from emberkeep import __version__

ROOT = Path(__file__).resolve().parents[3]
# What hatchling adds to the files that are named in pyproject.toml.
ADDED = {"PKG-INFO", "pyproject.toml", ".gitignore"}
# pip finds everything that it needs here, so the tests use no network.
PIP = ("--no-deps", "--no-index", "--no-compile")


@dataclass(frozen=True)
class Source:
    """One distribution: its folder in the clone, its package, the files beside the package in its archive."""

    folder: str
    package: str
    beside: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.package}-{__version__}"

    def files(self) -> set[str]:
        """Files of the package, as git knows them and before they are committed."""
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"]
        where = ROOT / self.folder
        listed = subprocess.run(command, cwd=where, capture_output=True, text=True, check=True).stdout.splitlines()
        return {path.removeprefix("src/") for path in listed if (where / path).exists()}


MAIN = Source(".", "emberkeep", frozenset({"README.md", "CHANGELOG.md", "LICENSE"}))
PROVIDER = Source("airflow_provider", "emberkeep_airflow", frozenset({"README.md"}))


@dataclass(frozen=True)
class Distribution:
    source: Source
    wheel: Path
    archive: Path

    def read(self, name: str) -> str:
        """Return a file of the wheel's metadata."""
        with zipfile.ZipFile(self.wheel) as wheel:
            return wheel.read(f"{self.source.name}.dist-info/{name}").decode()


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    outside = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PIPX_"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=outside | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(source: Source, folder: Path, target: Path) -> Distribution:
    run(sys.executable, "-m", "hatchling", "build", "-d", target, cwd=folder)
    return Distribution(source, target / f"{source.name}-py3-none-any.whl", target / f"{source.name}.tar.gz")


@pytest.fixture(scope="module")
def main(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return build(MAIN, ROOT, tmp_path_factory.mktemp("main"))


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return build(PROVIDER, ROOT / PROVIDER.folder, tmp_path_factory.mktemp("provider"))


@pytest.fixture(params=["main", "provider"])
def built(request: pytest.FixtureRequest) -> Distribution:
    made: Distribution = request.getfixturevalue(request.param)
    return made


def share_libraries(environment: Path) -> None:
    """Make an environment with pip and the dependencies of this one, where pipx looks for its shared libraries.

    pipx would download a newer pip than Python brings, and reads the metadata of all dependencies.
    """
    venv.create(environment, with_pip=False)
    (there,) = environment.glob("lib/python*/site-packages")
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if "emberkeep" not in each.name:
            (there / each.name).symlink_to(each)
    command = environment / "bin" / "pip"
    command.write_text(f'#!/bin/sh\nexec "{environment}/bin/python" -m pip "$@"\n')
    command.chmod(0o755)


def share_dependencies(site_packages: Iterator[Path]) -> None:
    """Let a new environment import the dependencies of this one: they are 1.3 GB."""
    (installed,) = site_packages
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib"))


def test_the_wheel_has_the_package_and_nothing_else(built: Distribution) -> None:
    name, package = built.source.name, built.source.package
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
    inside = {each for each in names if each.startswith(f"{package}/")}
    assert inside == built.source.files()
    assert all(each.startswith(f"{name}.dist-info/") for each in names - inside)


def test_the_wheel_of_the_main_distribution_has_its_licence(main: Distribution) -> None:
    assert "Apache License" in main.read("licenses/LICENSE")


def test_the_source_archive_has_what_is_needed_to_build_it(built: Distribution) -> None:
    with tarfile.open(built.archive) as archive:
        names = {name.removeprefix(f"{built.source.name}/") for name in archive.getnames()}
    assert names - ADDED == built.source.beside | {f"src/{name}" for name in built.source.files()}


def test_the_archive_gives_the_same_bytes_on_another_path(built: Distribution, tmp_path: Path) -> None:
    with tarfile.open(built.archive) as archive:
        archive.extractall(tmp_path, filter="data")
    again = build(built.source, tmp_path / built.source.name, tmp_path / "dist")
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.archive.read_bytes() == built.archive.read_bytes()


def test_the_package_index_would_accept_both_files(built: Distribution, tmp_path: Path) -> None:
    """Their metadata is valid, and their description can be shown as a page."""
    run(sys.executable, "-m", "twine", "check", "--strict", built.wheel, built.archive, cwd=tmp_path)


def test_pip_installs_the_wheel_into_a_new_environment(main: Distribution, tmp_path: Path) -> None:
    place = tmp_path / "another place"
    venv.create(place, with_pip=False)
    run(sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", *PIP, main.wheel, cwd=tmp_path)
    share_dependencies(place.glob("lib/python*/site-packages"))
    where = run(place / "bin" / "python", "-P", "-c", "import emberkeep; print(emberkeep.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(place)
    assert run(place / "bin" / "emberkeep", "version", cwd=tmp_path).startswith(f"emberkeep {__version__}, ")


def test_pipx_installs_the_commands(main: Distribution, tmp_path: Path) -> None:
    home, commands = tmp_path / "home", tmp_path / "commands"
    share_libraries(home / "shared")
    run(
        *(sys.executable, "-m", "pipx", "install", f"--pip-args={' '.join(PIP)}", main.wheel),
        cwd=tmp_path,
        PIPX_HOME=str(home),
        PIPX_BIN_DIR=str(commands),
        PIPX_DEFAULT_PYTHON=sys.executable,
        PIPX_DISABLE_SHARED_LIBS_AUTO_UPGRADE="1",
    )
    assert {each.name for each in commands.iterdir()} == {"emberkeep", "emberkeep-spark-submit"}
    assert run(commands / "emberkeep", "version", cwd=tmp_path).startswith(f"emberkeep {__version__}, ")


def test_airflow_reads_the_version_of_the_provider(provider: Distribution, tmp_path: Path) -> None:
    program = "from emberkeep_airflow.provider_info import get_provider_info as info; print(*info()['versions'])"
    with zipfile.ZipFile(provider.wheel) as wheel:
        wheel.extractall(tmp_path)
    path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
    assert run(sys.executable, "-P", "-c", program, cwd=tmp_path, PYTHONPATH=path) == f"{__version__}\n"
    assert "[apache_airflow_provider]" in provider.read("entry_points.txt")
