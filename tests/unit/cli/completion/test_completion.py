"""``emberkeep completion``: the scripts, and what bash completes with its one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emberkeep.cli.application import build_app, main

Output = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "emberkeep"
    path.write_text(build_app().generate_completion(shell="bash"))
    return path


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_script_knows_the_commands(shell: str, capfd: Output) -> None:
    assert main(["completion", shell]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    assert all(word in out for word in ("evacuate", "savepoint", "emberkeep"))


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["node", "ev"], ["evacuate"]),
        (["cluster", ""], ["down", "status", "up"]),
        (["list", "--output", ""], ["json", "table", "wide", "yaml"]),
        (["node", "evacuate", "n", "--ca"], ["--cause"]),
        (["token", "create", "a", "--role", "op"], ["operator"]),
    ],
)
def test_bash_completes_commands_options_and_values(words: list[str], completed: list[str], script: Path) -> None:
    line = ["emberkeep", *words]
    asked = f"""
        source {script}
        COMP_WORDS=({" ".join(repr(word) for word in line)}); COMP_CWORD={len(line) - 1}
        _emberkeep; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", asked], capture_output=True, text=True, check=True, timeout=30)
    assert sorted(word for word in done.stdout.split() if not word.startswith("-") or word == "--cause") == completed


def test_it_is_installed_where_the_shell_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    assert main(["completion", "bash", "--install"]) == 0
    installed = tmp_path / ".local/share/bash-completion/completions/emberkeep"
    assert "complete -F _emberkeep emberkeep" in installed.read_text()
    assert str(installed) in capfd.readouterr().err
    assert not (tmp_path / ".bashrc").exists()
