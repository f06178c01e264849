"""How a command ends after an error that nobody has foreseen."""

from __future__ import annotations

import errno
import sys

import pytest

from emberkeep.cli.application import main
from emberkeep.cli.exit_codes import ExitCode, ended
from tests.unit.client.fake_job_manager import FakeJobManager


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


@pytest.mark.parametrize(
    "words",
    [
        ("node", "block", "caf\udce9", "--cause", "x"),
        ("node", "block", "node-1", "--cause", "caf\udce9"),
        ("taskmanagers", "show", "caf\udce9"),
        ("logs", "--taskmanager", "caf\udce9"),
        ("token", "revoke", "caf\udce9"),
        ("events", "--text", "caf\udce9"),
        ("list", "--owner", "caf\udce9"),
        ("audit", "--identity", "caf\udce9"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_an_argument_that_is_not_utf_8_is_wrong_usage_and_no_bug(
    words: tuple[str, ...], fake: FakeJobManager, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["emberkeep", *words])
    assert main(words) == 2
    err = capfd.readouterr().err
    assert "is not UTF-8" in err
    assert "internal error" not in err


def encoding_error(text: str) -> UnicodeEncodeError:
    with pytest.raises(UnicodeEncodeError) as caught:
        text.encode()
    return caught.value


def test_a_text_that_is_no_argument_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert failing(encoding_error("a secret \udce9")) == ExitCode.FAILED
    err = capsys.readouterr().err
    assert "internal error: UnicodeEncodeError" in err
    assert "secret" not in err


def test_of_a_long_argument_only_what_is_not_utf_8_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "far away " * 20 + "near caf\udce9 here" + " behind" * 20
    monkeypatch.setattr(sys, "argv", ["emberkeep", "events", f"--text={text}"])
    failing(encoding_error(text))
    err = capsys.readouterr().err
    assert "near caf\\udce9 here" in err
    assert len(err) < 200
