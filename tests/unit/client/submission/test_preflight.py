import zipfile
from pathlib import Path

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.client.submission.preflight import check_module, check_script


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_script_that_compiles_is_given_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "app.py", "import nothing_installed\nraise SystemExit(3)\n")
    monkeypatch.chdir(tmp_path)
    assert check_script("app.py", None) == tmp_path / "app.py"


@pytest.mark.parametrize(
    "source", ["# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"), b"\xef\xbb\xbfprint(1)\n", b"x = '\\d'\n", b""]
)
def test_python_source_in_any_form_is_accepted(tmp_path: Path, source: bytes) -> None:
    path = write(tmp_path / "app.py", source)
    assert check_script(str(path), None) == path


def test_a_syntax_error_is_shown_as_python_shows_it(tmp_path: Path) -> None:
    path = write(tmp_path / "app.py", "import sys\n\nif True print(1)\n")
    with pytest.raises(InvalidInput) as caught:
        check_script(str(path), None)
    lines = caught.value.message.splitlines()
    assert lines[0] == "the script does not compile:"
    assert lines[1].strip() == f'File "{path}", line 3'
    assert lines[2].strip() == "if True print(1)"
    assert lines[3].strip().startswith("^")
    assert lines[4].startswith("SyntaxError: ")


@pytest.mark.parametrize("source", [b"x = 1\0", bytes(range(128, 256))])
def test_what_is_not_python_is_told(tmp_path: Path, source: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"is not Python source|does not compile"):
        check_script(str(write(tmp_path / "app", source)), None)


@pytest.mark.parametrize(
    ("script", "main_class", "message"),
    [
        ("app.py", "org.example.Main", "--class is for Java and Scala applications"),
        ("app.jar", None, r"app\.jar: Java or Scala applications are not supported"),
        ("app.R", None, r"app\.R: R applications are not supported"),
        ("missing.py", None, r"script: missing\.py does not exist \(looked in "),
        ("hdfs://host/app.py", None, r"the script must be a local file \(download it first\)"),
        (".", None, r"script: \. is a directory \(name the script file itself, or use -m"),
    ],
)
def test_what_cannot_be_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, main_class: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=message):
        check_script(script, main_class)


def test_modules_are_found_where_the_driver_will_find_them(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    write(tmp_path / "pkg" / "job.py", "x = 1")
    write(tmp_path / "broken.py", "x =")
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("inside/__main__.py", "x = 1")
        zipped.writestr("bad.py", "x =")
    assert check_module("pkg.job", tmp_path, []) is None
    assert check_module("inside", tmp_path, [archive]) is None
    assert check_module("json.tool", tmp_path, []) is None
    assert check_module("timeit", tmp_path, []) is None
    notice = check_module("nowhere.to.be.found", tmp_path, [archive])
    assert notice is not None
    assert "must be installed on the cluster's nodes" in notice
    for module in ("broken", "bad"):
        with pytest.raises(InvalidInput, match="does not compile"):
            check_module(module, tmp_path, [archive])


def test_a_damaged_zip_file_with_modules_is_told(tmp_path: Path) -> None:
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("inside.py", "x = 1")
    archive.write_bytes(archive.read_bytes().replace(b"x = 1", b"x = 2"))
    with pytest.raises(InvalidInput, match=r"--py-files: .*lib\.zip cannot be read as a zip file: Bad CRC-32"):
        check_module("inside", tmp_path, [archive])


@pytest.mark.parametrize("module", ["pkg/job.py", "job-1", "", "a..b", "1a"])
def test_a_name_that_is_no_module_is_told(tmp_path: Path, module: str) -> None:
    with pytest.raises(InvalidInput, match="not a module's name"):
        check_module(module, tmp_path, [])


def test_a_file_after_m_is_no_module(tmp_path: Path) -> None:
    (tmp_path / "job.py").touch()
    with pytest.raises(InvalidInput, match=r"-m job\.py: not a module's name") as caught:
        check_module("job.py", tmp_path, [])
    assert "leave out -m" in str(caught.value.hint)
