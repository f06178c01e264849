import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.errors import InvalidInput
from emberkeep.client.submission.job_files import JobFile, check_local_file, parse_file_list
from emberkeep.jobs.model import ArtefactRole

PY, FILE, ARCHIVE, JAR = ArtefactRole.PY_FILE, ArtefactRole.FILE, ArtefactRole.ARCHIVE, ArtefactRole.JAR


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a few files."""
    for name in ("a.py", "b.py", "c.zip", "one.jar", "two.jar", "data#1.csv"):
        (tmp_path / name).write_text(name)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "a.py").write_text("another")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("role", "text", "expected"),
    [
        (PY, "", []),
        (PY, "a.py", [("a.py", "")]),
        (PY, " a.py , b.py,,", [("a.py", ""), ("b.py", "")]),
        (JAR, "*.jar", [("one.jar", ""), ("two.jar", "")]),
        (JAR, "one.jar,*.jar", [("one.jar", ""), ("two.jar", "")]),
        (FILE, "a.py#renamed.py", [("a.py", "renamed.py")]),
        (ARCHIVE, "c.zip#env", [("c.zip", "env")]),
        (FILE, "data#1.csv", [("data#1.csv", "")]),
        (ARCHIVE, "?.zip#env", [("c.zip", "env")]),
        (ARCHIVE, "c.zip#env,c.zip#other,c.zip#env", [("c.zip", "env"), ("c.zip", "other")]),
        (FILE, "a.py,a.py#b.py", [("a.py", ""), ("a.py", "b.py")]),
        (PY, "[ab].py", [("a.py", ""), ("b.py", "")]),
    ],
)
def test_lists_are_read_as_spark_submit_reads_them(
    folder: Path, role: ArtefactRole, text: str, expected: list[tuple[str, str]]
) -> None:
    found = parse_file_list(role, text)
    assert [(str(file.path.relative_to(folder)), file.fragment) for file in found.local] == expected
    assert found.remote == ()


def test_file_urls_are_local_and_others_are_left_to_spark(folder: Path) -> None:
    text = f"file://{folder}/c.zip#env,hdfs://nn/x.zip,local:/opt/y.zip,https://h/z.zip#z"
    found = parse_file_list(ARCHIVE, text)
    assert found.local == (JobFile(ARCHIVE, folder / "c.zip", "env"),)
    assert found.remote == ("hdfs://nn/x.zip", "local:/opt/y.zip", "https://h/z.zip#z")


@pytest.mark.parametrize(
    ("role", "text", "message"),
    [
        (PY, "missing.py", r"--py-files: missing\.py does not exist \(looked in /.*\)"),
        (JAR, "*.nothing", r"--jars: nothing matches \*\.nothing"),
        (PY, "pkg", r"--py-files: pkg is a directory \(pack it as a zip file: .*zip -r pkg\.zip pkg"),
        (JAR, "pkg", r"--jars: pkg is a directory \(name the files in the directory: 'pkg/\*'\)"),
        (ARCHIVE, "pkg", r"--archives: pkg is a directory \(pack the directory: tar czf"),
        (FILE, "*.py#x", r"matches 2 files, so #x is ambiguous"),
        (FILE, "a.py#x/y", "must be a plain name"),
        (FILE, "a.py#..", "must be a plain name"),
        (ARCHIVE, "file:///c.zip#x/y", "must be a plain name"),
        (PY, f"{'a' * 300}.py", "cannot read a+.py: File name too long"),
        (FILE, f"{'a' * 300}.py", "cannot read a+.py: File name too long"),
        (PY, "a.py,pkg/a.py", r"would both be called a\.py \(rename one of them\)"),
        (FILE, "a.py#b.py,b.py", r"would both be called b\.py \(give one an alias"),
        (FILE, "/dev/null", "not a regular file"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_cannot_be_sent_is_told_with_a_way_out(role: ArtefactRole, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_file_list(role, text)


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Drop root's right to read everything, where this is root."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_without_permission_is_told(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "a.py").chmod(0)
    with unprivileged(), pytest.raises(InvalidInput, match=r"cannot read a\.py: Permission denied"):
        check_local_file("--files", Path("a.py"))


def test_a_folder_that_may_not_be_entered_is_told(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "pkg").chmod(0)
    with unprivileged(), pytest.raises(InvalidInput, match=r"cannot read pkg/a\.py: Permission denied"):
        parse_file_list(FILE, "pkg/a.py")


def test_an_artefact_has_hash_and_size(folder: Path) -> None:
    artefact = JobFile(ARCHIVE, folder / "c.zip", "env").artefact()
    assert artefact.sha256 == hashlib.sha256(b"c.zip").hexdigest()
    assert (artefact.name, artefact.size, artefact.fragment, artefact.role) == ("c.zip", 5, "env", ARCHIVE)
