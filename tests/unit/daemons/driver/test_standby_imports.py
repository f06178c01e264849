"""What a reserved standby imports for its job: installed packages, and nothing of the job's own files."""

from __future__ import annotations

import errno
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.daemons.driver import standby_imports
from emberkeep.daemons.driver.standby_imports import OwnModules, import_for_job, wanted_imports


class Job:
    """A job's files below ``root / "job"``, and packages that are installed below ``root / "site"``."""

    def __init__(self, root: Path) -> None:
        self.folder, self.site = root / "job", root / "site"
        self.folder.mkdir()
        self.site.mkdir()
        self.places = [self.folder]

    @property
    def script(self) -> str:
        return str(self.folder / "script.py")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def install(self, name: str, text: str) -> None:
        path = self.site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def wanted(self, script: str) -> list[tuple[str, tuple[str, ...]]]:
        self.write("script.py", script)
        return list(wanted_imports(self.script, "", OwnModules(self.places)))

    def imports(self, script: str) -> int:
        self.write("script.py", script)
        return import_for_job(self.script, "", self.places)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    made = Job(tmp_path)
    monkeypatch.syspath_prepend(str(made.site))
    before, finders = set(sys.modules), list(sys.meta_path)
    yield made
    assert sys.meta_path == finders
    for name in set(sys.modules) - before:
        del sys.modules[name]


SCRIPT = """
from __future__ import annotations
import sys, ek_one.inner as inner
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import never
else:
    import ek_two
try:
    from ek_three import first, second
except ImportError:
    from ek_four import *
with open("x") as file:
    class Inner:
        import ek_five
def later():
    import never
async def later_as_well():
    import never
match sys.argv:
    case []:
        import ek_six
raise SystemExit("a script is not run")
"""


def test_what_a_script_imports_when_it_begins(job: Job) -> None:
    assert job.wanted(SCRIPT) == [
        ("__future__", ("annotations",)),
        ("sys", ()),
        ("ek_one.inner", ()),
        ("typing", ("TYPE_CHECKING",)),
        ("ek_two", ()),
        ("ek_three", ("first", "second")),
        ("ek_four", ()),
        ("ek_five", ()),
        ("ek_six", ()),
    ]


def test_own_modules_are_followed_wherever_they_are(job: Job, tmp_path: Path) -> None:
    job.write("beside.py", "import ek_beside")
    job.write("package/__init__.py", "from . import part\nfrom .other import thing\nfrom .. import outside")
    job.write("package/part.py", "import ek_part\nfrom .deep import x\nimport beside")
    job.write("package/other.py", "import ek_other")
    job.write("package/deep/__init__.py", "from ..other import thing\nimport ek_deep")
    job.write("plain/inner.py", "import ek_plain")
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("zipped/__init__.py", "import ek_zipped")
        archive.writestr("zipped/sub.py", "import ek_sub")
    job.places.append(tmp_path / "lib.zip")
    found = {name for name, _ in job.wanted("import beside, package\nfrom zipped import sub\nimport plain.inner")}
    expected = {"ek_beside", "ek_part", "ek_other", "ek_deep", "ek_plain", "ek_zipped", "ek_sub"}
    assert found == expected | {"plain.inner"}, "a folder without __init__.py may be an installed package"


def test_a_place_that_cannot_be_looked_at_is_none_of_the_job_s(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may be submitted from a folder below one that is closed to its task manager."""
    closed = job.folder / "home" / "project"
    real = os.stat

    def refuse(path: os.PathLike[str] | str, **options: Any) -> os.stat_result:
        if str(path).startswith(str(closed)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", refuse)
    job.places.append(closed)
    assert job.wanted("import ek_one") == [("ek_one", ())]


def test_a_module_whose_name_no_file_can_have_is_not_the_job_s(job: Job) -> None:
    long = "x" * 300
    assert job.wanted(f"import {long}\nimport ek_one") == [(long, ()), ("ek_one", ())]


def test_a_module_as_program_is_followed(job: Job) -> None:
    job.write("app/__init__.py", "")
    job.write("app/__main__.py", "import ek_main")
    job.write("app/start.py", "import ek_start")
    own = OwnModules(job.places)
    assert list(wanted_imports("", "app", own)) == [("ek_main", ())]
    assert list(wanted_imports("", "app.start", own)) == [("ek_start", ())]
    assert list(wanted_imports("", "not_there", own)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import (",
        "\0",
        "(" * 5000,
        "x = " + "-" * 50_000 + "1",
        "\n".join(["if x:\n  pass"] + ["elif x:\n  pass"] * 3000),
    ],
    ids=["no Python", "a null byte", "parentheses", "signs", "branches"],
)
def test_a_file_that_cannot_be_parsed_costs_nothing(job: Job, text: str) -> None:
    job.write("odd.py", text)
    assert job.wanted("import odd\nimport ek_one") == [("ek_one", ())]


def test_what_is_read_is_bounded(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_imports, "LARGEST_FILE", 100)
    job.write("large.py", "import never" + " " * 100)
    assert job.wanted("import large, ek_one") == [("ek_one", ())]
    monkeypatch.setattr(standby_imports, "MOST_FILES", 1)
    for name in ("first", "second"):
        job.write(f"{name}.py", f"import ek_{name}")
    assert job.wanted("import first, second") == [("ek_first", ())]
    monkeypatch.setattr(standby_imports, "MOST_NAMES", 2)
    assert job.wanted("import a1, a2, a3") == [("a1", ()), ("a2", ())]


def test_damaged_places_and_no_script_cost_nothing(job: Job, tmp_path: Path) -> None:
    (tmp_path / "lib.zip").write_bytes(b"no zip file")
    job.places += [tmp_path / "lib.zip", tmp_path / "nowhere", Path()]
    assert job.wanted("import ek_one") == [("ek_one", ())]
    assert import_for_job(str(tmp_path / "nowhere.py"), "", job.places) == 0


def test_a_damaged_module_in_a_zip_file_costs_nothing(job: Job, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "lib.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zipped.py", "import ek_zipped\n" * 20)
    content = bytearray((tmp_path / "lib.zip").read_bytes())
    content[39:44] = b"\xff" * 5  # the compressed bytes begin here
    (tmp_path / "lib.zip").write_bytes(content)
    job.places.append(tmp_path / "lib.zip")
    assert job.wanted("import ek_one, zipped") == [("ek_one", ())]


# --- importing --------------------------------------------------------------------------------------------------------


def test_installed_packages_are_imported_and_own_files_are_not_run(job: Job) -> None:
    job.install("ek_one/__init__.py", "")
    job.install("ek_one/part.py", "")
    job.install("ek_one/unwanted.py", "")
    job.write("own.py", "import ek_one\nraise SystemExit('own files are not run')")
    assert job.imports("import own\nfrom ek_one import part, absent\nraise SystemExit('nor is the script')") == 2
    assert {"ek_one", "ek_one.part"} <= set(sys.modules)
    assert not {"own", "script", "ek_one.unwanted"} & set(sys.modules)


@pytest.mark.parametrize(
    "text",
    ["raise ValueError", "raise SystemExit(3)", "raise KeyboardInterrupt", "import not_there_at_all", "import ("],
)
def test_an_import_that_fails_costs_nothing(job: Job, text: str) -> None:
    job.install("ek_bad.py", text)
    job.install("ek_good.py", "")
    assert job.imports("import ek_bad, ek_good, ek_absent") == 1
    assert "ek_good" in sys.modules


def test_a_package_that_needs_what_the_job_has_as_well_ends_the_standby(job: Job) -> None:
    """The script would import its own module, and the package would have to get that one, too."""
    job.install("ek_shared.py", "")
    job.install("ek_user.py", "try:\n    import ek_shared\nexcept ImportError:\n    ek_shared = None")
    job.write("ek_shared.py", "")
    with pytest.raises(Fatal, match="a package imports 'ek_shared', which the job's own files have as well"):
        job.imports("import ek_user")


def test_own_modules_that_no_package_needs_are_no_obstacle(job: Job) -> None:
    job.install("ek_shared.py", "raise SystemExit('it is hidden by the job')")
    job.install("ek_user.py", "")
    job.write("ek_shared.py", "")
    assert job.imports("import ek_shared, ek_user") == 1
    assert "ek_shared" not in sys.modules


def test_a_package_that_starts_spark_ends_the_standby(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(_active_spark_context=None)
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(SparkContext=context))
    job.install("ek_starter.py", "import pyspark; pyspark.SparkContext._active_spark_context = 1")
    with pytest.raises(Fatal, match="a package has started Spark while it was imported"):
        job.imports("import ek_starter")
