"""What a shell completes by asking the cluster, as the completion scripts ask for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from emberkeep.cli import application
from emberkeep.cli.application import build_app, main
from emberkeep.cli.completion import candidates
from emberkeep.jobs.model import JobStatus
from tests.unit.cli.scripted_gateway import Scripted
from tests.unit.client.fake_job_manager import FakeJobManager, job_info, task_manager_info
from tests.unit.rest.fake_gateway import job_id, job_view

Output = pytest.CaptureFixture[str]
A, B, C = "a1" * 16, "a1b2" * 8, "c3" * 16


@pytest.fixture(autouse=True)
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process does more than to complete a word."""
    monkeypatch.setattr(application, "end_soon", lambda: None)


def completed(capfd: Output, *words: str) -> list[str]:
    """Return the values that ``emberkeep __complete`` prints for the words, of which the last one is completed."""
    capfd.readouterr()
    assert main(["__complete", *words]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    _, _, records = out.partition("\x1fbegin\n")
    return [line.split("\t")[0] for line in records.splitlines()]


def test_jobs_are_completed_by_id_and_by_name(fake: FakeJobManager, capfd: Output) -> None:
    fake.jobs = {A: job_info(A, "etl", state=JobStatus.FINISHED), B: job_info(B, "counts"), C: job_info(C, "counts 2")}

    for command in (["info"], ["cancel"], ["savepoint", "create"], ["blob", "verify"], ["events"], ["upgrade"]):
        assert sorted(completed(capfd, *command, "")) == sorted([A[:8], B[:8], C[:8], "etl", "counts", "counts 2"]), (
            command
        )
    assert sorted(completed(capfd, "info", "c")) == sorted([C[:8], "counts", "counts 2"])
    assert completed(capfd, "logs", A[:9]) == [A], "a longer word is completed to the whole id"
    assert completed(capfd, "audit", "--job", "et") == ["etl"]
    assert completed(capfd, "upgrade", "counts", "") == [], "the script comes next"


def test_nodes_and_task_managers_are_completed(fake: FakeJobManager, capfd: Output) -> None:
    fake.task_managers = [task_manager_info("tm-1"), task_manager_info("tm-2")]
    node = fake.task_managers[0].emberkeep.node_id

    assert completed(capfd, "node", "unblock", "") == [node]
    assert completed(capfd, "node", "unblock", "--task-manager", "") == ["tm-1", "tm-2"]
    assert completed(capfd, "logs", "--taskmanager", "tm-") == ["tm-1", "tm-2"]
    assert completed(capfd, "taskmanagers", "show", "tm-2") == ["tm-2"]


def test_savepoints_are_completed(gateway: Scripted, capfd: Output) -> None:
    paths = sorted(entry.path for view in gateway.views.values() for entry in view.pointers.savepoints)

    assert sorted(completed(capfd, "savepoint", "show", "")) == paths
    assert sorted(completed(capfd, "run", "--from-savepoint", "")) == paths
    assert sorted(completed(capfd, "savepoint", "restore", "")) == paths


def test_what_is_no_word_of_a_shell_is_not_offered(gateway: Scripted, capfd: Output) -> None:
    gateway.views.clear()
    for number, name in enumerate(("fine", "-rf", "two\nlines", "bell\x07", "\x1b[31mred", "Zähler"), 1):
        gateway.add(job_view(job_id(number), name))

    assert sorted(word for word in completed(capfd, "info", "") if not word.isalnum() or len(word) != 8) == [
        "Zähler",
        "fine",
    ]


def test_no_more_candidates_than_a_shell_can_show(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "_MOST", 10)
    ids = [f"{number:032x}" for number in range(1, 40)]
    fake.jobs = {each: job_info(each, f"job {number}") for number, each in enumerate(ids)}

    assert len(completed(capfd, "info", "")) == 10


@pytest.mark.parametrize(
    "options",
    [["--url", "http://127.0.0.1:1"], ["--url", "::"], ["--config", "/none"], ["-D", "no such thing"], ["--url", ""]],
)
def test_without_a_cluster_there_is_nothing_to_offer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output, options: list[str]
) -> None:
    for name in [name for name in os.environ if name.startswith("EMBERKEEP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("EMBERKEEP_STATE_DIR", str(tmp_path))

    assert completed(capfd, "info", *options, "") == []


def test_a_cluster_that_is_named_on_the_line_is_asked(
    fake: FakeJobManager, capfd: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.jobs = {A: job_info(A, "etl")}
    monkeypatch.delenv("EMBERKEEP_URL")

    assert completed(capfd, "info", "e") == []
    assert completed(capfd, "info", "--url", fake.url, "e") == ["etl"]
    assert completed(capfd, "info", f"--url={fake.url}", "e") == ["etl"]
    assert completed(capfd, "info", "-D", f"rest.port={fake.url.rpartition(':')[2]}", "e") == ["etl"]


def test_a_cluster_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    """It accepts connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("EMBERKEEP_")}
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [sys.executable, "-m", "emberkeep.cli.main", "__complete", "info", "--url", url, ""]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**environ, "EMBERKEEP_STATE_DIR": str(tmp_path), "EMBERKEEP_SECURITY__ENCRYPTION": "none"},
        )

    assert (done.stdout, done.stderr) == ("\n\x1fbegin\n", "")


def test_a_signal_that_comes_as_the_process_ends_does_not_kill_it() -> None:
    program = "from emberkeep.cli.completion import candidates\ncandidates._END_SECONDS = 0.5\ncandidates.end_soon()\n"
    program += (
        "import time\nclass Late:\n    def __del__(self, sleep=time.sleep): sleep(1.5)\nlate = Late()\nprint('one')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)

    assert (done.stdout, done.stderr) == ("one\n", "")


def test_whatever_it_waits_for_the_process_ends() -> None:
    program = "from emberkeep.cli.completion import candidates\ncandidates._END_SECONDS = 0.1\ncandidates.end_soon()\n"
    program += "import threading\nprint('one')\nthreading.Event().wait(60)\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=True)

    assert (done.stdout, done.stderr) == ("one\n", "")


def test_bash_asks_the_command_and_inserts_one_word(fake: FakeJobManager, tmp_path: Path) -> None:
    fake.jobs = {A: job_info(A, "etl"), B: job_info(B, "counts of words")}
    script, command = tmp_path / "script", tmp_path / "emberkeep"
    script.write_text(build_app().generate_completion(shell="bash"))
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m emberkeep.cli.main "$@"\n')
    command.chmod(0o700)

    def words(*line: str) -> list[str]:
        asked = f"""
            source {script}
            COMP_WORDS=({" ".join(repr(word) for word in line)}); COMP_CWORD={len(line) - 1}
            _emberkeep; printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(["bash", "--norc", "-c", asked], capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.splitlines()

    assert words(str(command), "info", "co") == [r"counts\ of\ words"]
    assert words(str(command), "info", "a1a") == [A[:8]]
    assert words(str(command), "cancel", "zzz") in ([], [""])
