"""Packed environments that work here, and those that do not, with the reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.taskmanager.libraries.cache import PYTHON
from emberkeep.taskmanager.libraries.python import check_interpreter


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    return tmp_path


def check(environment: Path, python: str = PYTHON) -> None:
    check_interpreter(environment, "bin/python", "env.tar.gz", python)


def program(environment: Path, text: str) -> None:
    (environment / "bin/python").write_text(f"#!/bin/sh\n{text}\n")
    (environment / "bin/python").chmod(0o755)


def test_an_interpreter_that_this_node_has_works(environment: Path) -> None:
    (environment / "bin/python").symlink_to("python3")
    (environment / "bin/python3").symlink_to(sys.executable)
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
