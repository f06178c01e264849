"""A driver imports modules beside its script from folders that only their owner can write, and once the script runs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from emberkeep.daemons.driver.program import find_program
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobs.model import Artefact, ArtefactRole, EntryPoint, EntryPointKind
from emberkeep.taskmanager.libraries.cache import BoundFile
from tests.unit.formats.golden_samples import DRIVER_SPEC

pytestmark = pytest.mark.req("SEC-4")

SOURCE = b"print('the checked text')\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    return folder


def of_script(folder: Path, sha256: str = hashlib.sha256(SOURCE).hexdigest()) -> DriverSpec:
    path = folder / "app.py"
    path.write_bytes(SOURCE)
    copy = folder.parent / "copy" / "app.py"
    copy.parent.mkdir()
    copy.write_bytes(SOURCE)
    graph = msgspec.structs.replace(
        DRIVER_SPEC.graph,
        entry_point=EntryPoint(kind=EntryPointKind.SCRIPT, name="app.py", source_path=str(path)),
        artefacts=(Artefact(role=ArtefactRole.SCRIPT, name="app.py", sha256=sha256, size=len(SOURCE)),),
    )
    bound = BoundFile(role=ArtefactRole.SCRIPT, name="app.py", path=str(copy))
    return msgspec.structs.replace(DRIVER_SPEC, graph=graph, files=(bound,))


def of_module(name: str) -> DriverSpec:
    graph = msgspec.structs.replace(
        DRIVER_SPEC.graph, entry_point=EntryPoint(kind=EntryPointKind.MODULE, name=name), artefacts=()
    )
    return msgspec.structs.replace(DRIVER_SPEC, graph=graph, files=())


def test_an_own_folder_is_used_by_driver_and_workers(folder: Path, tmp_path: Path) -> None:
    program = find_program(of_script(folder), tmp_path)
    assert (program.beside, program.folders) == (True, (str(folder), str(tmp_path)))


def test_a_folder_that_others_can_write_is_named_and_not_used(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = of_script(folder)
    folder.chmod(0o777)
    program = find_program(spec, folder)
    assert (program.beside, program.folders) == (False, ())
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning == (
        f"emberkeep: warning: {folder} is not used for imports: other users can write to {folder} "
        "(let only its owner write there, or pass modules with --py-files)"
    )


def test_the_text_that_was_checked_is_what_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = find_program(of_script(folder), folder)
    (folder / "app.py").write_text("print('planted')\n")
    code = f"""if 1:
        import sys
        from emberkeep.daemons.driver.program import DriverProgram
        DriverProgram({program.name!r}, {program.source!r}, True, (), 0).run([], lambda _: None)
    """
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "the checked text\n"


def test_a_changed_script_runs_from_the_copy(folder: Path, tmp_path: Path) -> None:
    spec = of_script(folder)
    (folder / "app.py").write_text("print('planted')\n")
    program = find_program(spec, tmp_path)
    assert (program.name, program.source) == (str(tmp_path / "copy" / "app.py"), SOURCE)


def test_a_module_is_searched_in_a_safe_working_directory_only(folder: Path) -> None:
    assert find_program(of_module("some.app"), folder).beside
    folder.chmod(0o1777)
    assert not find_program(of_module("some.app"), folder).beside


@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("safe_path", [["-P"], []])
def test_the_scripts_folder_is_first_once_the_script_runs(folder: Path, *, beside: bool, safe_path: list[str]) -> None:
    (folder / "app.py").write_text("import json, sys\nprint(json.dumps(sys.path))\n")
    code = f"""if 1:
        import sys
        from emberkeep.spark.files.job_files import add_to_path
        from emberkeep.spark.model import JobFiles
        from emberkeep.spark.script.runner import run_script
        from pathlib import Path
        add_to_path(JobFiles(py_files={{"code.zip": Path("/code.zip")}}))
        run_script({str(folder / "app.py")!r}, [], beside={beside})
    """
    command = [sys.executable, *safe_path, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=folder.parent)
    first = json.loads(done.stdout)[: 1 + beside]
    assert first == [*([str(folder)] if beside else []), "/code.zip"]
