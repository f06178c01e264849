"""The wheel and the source archive that a release publishes: what is in them, and that they can be made again."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from emberkeep import __version__

ROOT = Path(__file__).resolve().parents[3]
NAME = f"emberkeep-{__version__}"
# What hatchling adds to the files that are named in pyproject.toml.
ADDED = {"PKG-INFO", "pyproject.toml", ".gitignore"}


@dataclass(frozen=True)
class Distribution:
    wheel: Path
    archive: Path


def build(source: Path, target: Path) -> Distribution:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Distribution(target / f"{NAME}-py3-none-any.whl", target / f"{NAME}.tar.gz")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distribution:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def sources() -> set[str]:
    """Files of the package, as git knows them and before they are committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return {path.removeprefix("src/") for path in listed if (ROOT / path).exists()}


def test_the_wheel_has_the_package_and_nothing_else(built: Distribution) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = set(wheel.namelist())
    package = {name for name in names if name.startswith("emberkeep/")}
    assert package == sources()
    assert all(name.startswith(f"{NAME}.dist-info/") for name in names - package)
    assert f"{NAME}.dist-info/licenses/LICENSE" in names


def test_the_source_archive_has_what_is_needed_to_build_it(built: Distribution) -> None:
    with tarfile.open(built.archive) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert names - ADDED == {"README.md", "CHANGELOG.md", "LICENSE", *(f"src/{name}" for name in sources())}


def test_the_archive_gives_the_same_bytes_on_another_path(built: Distribution, tmp_path: Path) -> None:
    with tarfile.open(built.archive) as archive:
        archive.extractall(tmp_path, filter="data")
    again = build(tmp_path / NAME, tmp_path / "dist")
    assert again.wheel.read_bytes() == built.wheel.read_bytes()
    assert again.archive.read_bytes() == built.archive.read_bytes()


def test_the_wheel_works_in_a_new_environment(built: Distribution, tmp_path: Path) -> None:
    """With the dependencies of this one, and away from the clone."""
    place = tmp_path / "another place"
    venv.create(place, with_pip=False)
    (installed,) = place.glob("lib/python*/site-packages")
    with zipfile.ZipFile(built.wheel) as wheel:
        wheel.extractall(installed)
        entry_points = wheel.read(f"{NAME}.dist-info/entry_points.txt").decode()
    assert "emberkeep = emberkeep.cli.main:main" in entry_points
    (installed / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    program = "import sys, emberkeep; from emberkeep.cli.main import main; print(emberkeep.__file__); sys.exit(main())"
    done = subprocess.run(
        [str(place / "bin" / "python"), "-P", "-c", program, "version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, shown = done.stdout.splitlines()
    assert Path(where).is_relative_to(place)
    assert shown.startswith(f"emberkeep {__version__}, ")
    shutil.rmtree(place)
