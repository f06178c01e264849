"""Packed environments that work here, and those that do not, with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.taskmanager.libraries import python
from emberkeep.taskmanager.libraries.cache import PYTHON
from emberkeep.taskmanager.libraries.python import check_interpreter


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path


def check(environment: Path) -> None:
    check_interpreter(environment, "bin/python", "env.tar.gz", PYTHON)


def program(environment: Path, text: str) -> None:
    (environment / "bin/python").write_text(f"#!/bin/sh\n{text}\n")
    (environment / "bin/python").chmod(0o755)


def test_an_interpreter_that_this_node_has_works(environment: Path) -> None:
    (environment / "bin/python").symlink_to("python3")
    (environment / "bin/python3").symlink_to(sys.executable)
    check(environment)


def test_what_an_environment_prints_as_it_starts_is_not_its_version(environment: Path) -> None:
    program(environment, f"echo welcome; echo {PYTHON}")
    check(environment)


def test_the_link_that_leads_nowhere_is_named(environment: Path) -> None:
    (environment / "bin/python").symlink_to("python3")
    (environment / "bin/python3").symlink_to("/opt/packer/bin/python3.11")
    with pytest.raises(Fatal, match=r"bin/python in env.tar.gz is a link to /opt/packer/bin/python3.11") as end:
        check(environment)
    assert "not on this node" in end.value.message
    assert end.value.hint is not None
    assert "conda-pack" in end.value.hint


def test_links_in_a_circle_are_no_interpreter(environment: Path) -> None:
    (environment / "bin/python").symlink_to("python")
    with pytest.raises(Fatal):
        check(environment)


def test_a_path_that_is_not_in_the_archive(environment: Path) -> None:
    with pytest.raises(Fatal, match=r"env.tar.gz has no bin/python"):
        check(environment)


def test_what_may_not_be_executed(environment: Path) -> None:
    (environment / "bin/python").write_text("")
    (environment / "bin/python").chmod(0o444)
    with pytest.raises(Fatal, match="is not executable"):
        check(environment)


def test_what_is_of_another_machine(environment: Path) -> None:
    (environment / "bin/python").write_bytes(b"\x7fELF of another kind of processor")
    (environment / "bin/python").chmod(0o755)
    with pytest.raises(Fatal, match=r"bin/python in env\.tar\.gz cannot be started"):
        check(environment)


def test_what_does_not_find_its_standard_library(environment: Path) -> None:
    program(environment, "echo \"ModuleNotFoundError: No module named 'encodings'\" >&2; exit 1")
    (environment / "pyvenv.cfg").write_text("home = /opt/packer/bin\nversion = 3.11.7\n")
    with pytest.raises(Fatal, match="No module named 'encodings'") as end:
        check(environment)
    assert "made from /opt/packer/bin, which is not on this node" in end.value.message


def test_another_python_than_the_drivers(environment: Path) -> None:
    program(environment, "echo 3.6")
    with pytest.raises(Fatal, match=f"is Python 3.6, but this cluster's drivers run Python {PYTHON}"):
        check(environment)


@pytest.mark.req("SEC-8")
@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_program_that_prints_without_end_is_ended(environment: Path, stream: str) -> None:
    """Its output is in the task manager's memory."""
    program(environment, f"exec yes >&{stream}")
    with pytest.raises(Fatal, match="prints too much to be Python"):
        check(environment)


@pytest.mark.req("SEC-8")
def test_a_program_that_does_not_end_is_ended(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "START_SECONDS", 0.2)
    for text in ("sleep 600", "exec >&- 2>&-; sleep 600"):
        program(environment, text)
        with pytest.raises(Fatal, match="does not start within"):
            check(environment)


@pytest.mark.req("SEC-8")
def test_a_description_that_has_no_end_is_not_read(environment: Path) -> None:
    program(environment, "exit 1")
    (environment / "pyvenv.cfg").symlink_to("/dev/zero")
    with pytest.raises(Fatal, match="does not start"):
        check(environment)
