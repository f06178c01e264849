"""``emberkeep blob``: what it prints, where, and its exit codes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from emberkeep.base.ids import JobId
from emberkeep.cli.application import main
from emberkeep.cli.jobs.upload_display import UploadDisplay
from emberkeep.protocol.rest_blobs import BlobProblem
from tests.unit.client.fake_job_manager import TOKEN, FakeJobManager, job_info

A, B = "a1" + "0" * 30, "b2" + "0" * 30
DATA = b"print('hi')\n"
KEY = f"p-{hashlib.sha256(DATA).hexdigest()}"
MESSAGE = f"t-{hashlib.sha256(b'message').hexdigest()}"

Output = pytest.CaptureFixture[str]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeJobManager]:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with FakeJobManager().serving() as server:
        server.jobs[A] = job_info(A, "mine")
        server.blobs = {(A, KEY): DATA, (A, MESSAGE): b"message", (B, KEY): DATA}
        server.held = {(A, KEY): ["job"], (A, MESSAGE): [f"tm-{number}" for number in range(5)]}
        monkeypatch.setenv("EMBERKEEP_SECURITY__ENCRYPTION", "none")
        monkeypatch.setenv("EMBERKEEP_URL", server.url)
        yield server


@pytest.mark.usefixtures("fake")
def test_list_shows_all_or_one_jobs(capfd: Output) -> None:
    assert main(["blob", "list"]) == 0
    out, err = capfd.readouterr()
    assert "HELD BY" in out
    assert "tm-0, tm-1, tm-2 and 2 more" in out
    assert "3 BLOBs, 31 B" in err
    assert main(["blob", "list", "mine", "-o", "json"]) == 0
    listed = json.loads(capfd.readouterr().out)
    assert [blob["key"] for blob in listed["blobs"]] == [KEY, MESSAGE]


def test_an_empty_store_is_said(fake: FakeJobManager, capfd: Output) -> None:
    fake.blobs.clear()
    assert main(["blob", "list"]) == 0
    assert capfd.readouterr() == ("", "emberkeep: no BLOBs are stored\n")


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize("key", [KEY, KEY[:10], KEY[2:], KEY[2:12], "p-"])
def test_show_takes_a_key_or_the_beginning_of_one(key: str, capfd: Output) -> None:
    assert main(["blob", "show", "mine", key]) == 0
    out = capfd.readouterr().out
    assert f"{KEY} (permanent)" in out
    assert "12 bytes" in out
    assert main(["blob", "show", A, key, "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["key"] == KEY


def test_show_saves_verified_content(fake: FakeJobManager, tmp_path: Path, capfd: Output) -> None:
    assert main(["blob", "show", "mine", KEY, "--save", "saved.py"]) == 0
    assert (tmp_path / "saved.py").read_bytes() == DATA
    assert "saved.py: 12 bytes, SHA-256 verified" in capfd.readouterr().err
    fake.blobs[A, KEY] = b"other"
    assert main(["blob", "show", "mine", KEY, "--save", "damaged.py"]) == 1
    assert hashlib.sha256(b"other").hexdigest() in capfd.readouterr().err
    assert not (tmp_path / "damaged.py").exists()


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "mine", "f" * 64], 4, "the job has no BLOB"),
        (["show", "mine", ""], 4, "the job has no BLOB"),
        (["show", "other", KEY], 4, "there is no job 'other'"),
        (["show", "mine", KEY, "--output", "saved.py"], 2, "expected table, wide, json or yaml"),
        (["list", "other"], 4, "there is no job 'other'"),
        (["show", "mine"], 2, "KEY"),
        (["list", "-o", "xml"], 2, "xml"),
    ],
)
def test_mistakes(arguments: list[str], code: int, message: str, capfd: Output) -> None:
    assert main(["blob", *arguments]) == code
    assert message in capfd.readouterr().err


def test_an_ambiguous_key_is_not_guessed(fake: FakeJobManager, capfd: Output) -> None:
    fake.blobs[A, KEY.replace("p-", "t-")] = DATA
    assert main(["blob", "show", "mine", KEY[2:]]) == 2
    assert "2 BLOBs begin with" in capfd.readouterr().err


def test_verify_names_what_is_damaged_and_exits_1(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["blob", "verify"]) == 0
    assert "0 damaged" in capfd.readouterr().err
    problem = f"its SHA-256 is {'e' * 64}, not {KEY[2:]}"
    fake.problems = [BlobProblem(jobid=JobId(B), key=KEY, store="local", problem=problem, healed=True)]
    assert main(["blob", "verify"]) == 0
    assert capfd.readouterr().out == f"healed: {KEY} of job {B} in local: {problem}\n"
    fake.problems = [BlobProblem(jobid=JobId(A), key=KEY, store="/ha", problem=problem, healed=False), *fake.problems]
    assert main(["blob", "verify", B]) == 0
    assert main(["blob", "verify", "mine"]) == 1
    out, err = capfd.readouterr()
    assert f"DAMAGED: {KEY} of job {A} in /ha: {problem}\n" in out
    assert "1 damaged" in err
    assert main(["blob", "verify", "-o", "json"]) == 1
    assert len(json.loads(capfd.readouterr().out)["problems"]) == 2


def test_gc_says_what_it_deleted(fake: FakeJobManager, capfd: Output) -> None:
    assert main(["blob", "gc"]) == 0
    out, err = capfd.readouterr()
    assert out == f"{KEY} of job {B}, 12 B\n"
    assert "1 BLOB deleted" in err
    assert main(["blob", "gc", "-o", "json"]) == 0
    assert json.loads(capfd.readouterr().out) == {"deleted": 0, "gone": [], "staged": 0}
    assert set(fake.blobs) == {(A, KEY), (A, MESSAGE)}


# --- progress of uploads ----------------------------------------------------------------------------------------------


def test_without_a_terminal_long_uploads_say_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("emberkeep.cli.jobs.upload_display.time.monotonic", lambda: now)
    lines: list[str] = []
    display = UploadDisplay(lines.append, quiet=False)
    display.begin(1, 3 * 1024**3)
    display.file("env.tar.gz")
    display.sent(1024**3)
    now = 111.0
    display.sent(1024**3)
    display.file("env.tar.gz")  # once more, after a failure
    display.end()
    assert lines == ["uploading env.tar.gz", "uploaded 2.0 GiB of 3.0 GiB"]


def test_quiet_uploads_say_nothing() -> None:
    lines: list[str] = []
    display = UploadDisplay(lines.append, quiet=True)
    display.begin(1, 3 * 1024**3)
    display.file("env.tar.gz")
    display.sent(1024**3)
    display.end()
    assert lines == []


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capfd: Output) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    display = UploadDisplay(lambda text: None, quiet=False)
    display.begin(2, 64 * 1024**2)
    display.file("env.tar.gz")
    display.sent(32 * 1024**2)
    display.end()
    display.end()
    assert "32.0/64.0 MiB" in capfd.readouterr().err
