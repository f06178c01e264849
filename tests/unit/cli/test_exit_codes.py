"""How a command ends after an error that nobody has foreseen."""

from __future__ import annotations

import errno

import pytest

from emberkeep.cli.exit_codes import ExitCode, ended


def failing(error: Exception) -> int:
    def run() -> int:
        raise error

    return ended(run, lambda _: ExitCode.FAILED)


@pytest.mark.parametrize("name", ["/etc/secret/ca.pem", b"/etc/secret/ca.pem"])
def test_a_file_that_cannot_be_used_is_named(capsys: pytest.CaptureFixture[str], name: str | bytes) -> None:
    """Such as a CA below a directory that this user may not search: the check whether it exists fails, too."""
    assert failing(PermissionError(errno.EACCES, "Permission denied", name)) == ExitCode.FAILED
    error = capsys.readouterr().err
    assert "cannot use /etc/secret/ca.pem: Permission denied" in error
    assert "this user may use it" in error
    assert "internal error" not in error


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), ZeroDivisionError("oops")])
def test_any_other_error_is_ours(capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    assert failing(error) == ExitCode.FAILED
    assert f"internal error: {type(error).__name__}" in capsys.readouterr().err
