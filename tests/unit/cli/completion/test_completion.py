"""``emberkeep completion``: the scripts, and what each shell completes with its one."""

from __future__ import annotations

import os
import shutil
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


UNIQUE = [
    ("emberkeep node ev", "emberkeep node evacuate"),
    ("emberkeep list --output w", "emberkeep list --output wide"),
    ("emberkeep node evacuate n --ca", "emberkeep node evacuate n --cause"),
    ("emberkeep token create a --role op", "emberkeep token create a --role operator"),
]
# Arguments: how the script gets known, and lines. Prints what Tab makes of each line.
IN_ZSH = r"""
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; unsetopt zle_bracketed_paste; autoload -Uz compinit; $1"
zpty -w shell 'show() { print -r -- "<${BUFFER}>"; BUFFER= }; zle -N show'
zpty -w shell 'bindkey "^I" complete-word; bindkey "^X" show'
zpty -w shell 'print REA""DY'
zpty -r shell out '*READY*'
for line in "${@[2,-1]}"; do
  zpty -w -n shell "$line"$'\t\x18'
  zpty -r shell out '*<*>*'
  print -r -- "${out[(r)<,(R)>]}"
done
zpty -d shell
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
@pytest.mark.parametrize("known", ["installed", "sourced", "below-any-name"])
def test_zsh_completes_commands_options_and_values(
    known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ZSH", "ZSH_CUSTOM", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    assert main(["completion", "zsh", *(["--install"] if known == "installed" else [])]) == 0
    (tmp_path / "_emberkeep").write_text(capfd.readouterr().out)
    place = tmp_path / ".zsh/completions" if known == "installed" else tmp_path
    begin = f"fpath=({place} $fpath); compinit -u -D"
    if known == "sourced":
        begin = f"compinit -u -D; source {tmp_path}/_emberkeep"
    asked = ["zsh", "-f", "-c", IN_ZSH, "zsh", begin, *(line for line, _ in UNIQUE)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [f"<{completed} >" for _, completed in UNIQUE], done.stderr


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes_commands_options_and_values(tmp_path: Path, capfd: Output) -> None:
    assert main(["completion", "fish"]) == 0
    (tmp_path / "emberkeep.fish").write_text(capfd.readouterr().out)
    home = {**os.environ, "HOME": str(tmp_path)}
    for line, completed in UNIQUE:
        asked = ["fish", "--no-config", "-c", 'source $argv[1]; complete -C "$argv[2]"']
        done = subprocess.run(
            [*asked, str(tmp_path / "emberkeep.fish"), line],
            capture_output=True,
            text=True,
            check=True,
            timeout=30,
            env=home,
        )
        assert [each.split("\t")[0] for each in done.stdout.splitlines()] == [completed.split()[-1]]


def test_it_is_installed_where_the_shell_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Output) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZSH_CUSTOM"):
        monkeypatch.delenv(name, raising=False)
    assert main(["completion", "bash", "--install"]) == 0
    installed = tmp_path / ".local/share/bash-completion/completions/emberkeep"
    assert installed.read_text().endswith("complete -F _emberkeep_whole_words emberkeep\n")
    assert str(installed) in capfd.readouterr().err
    assert not (tmp_path / ".bashrc").exists()
