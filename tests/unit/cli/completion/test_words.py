"""What Tab makes of a line whose words contain what a shell splits at or quotes, in real interactive shells."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emberkeep.cli.application import main
from tests.unit.client.fake_job_manager import FakeJobManager, job_info

Output = pytest.CaptureFixture[str]
JOBS = {
    "a1" * 16: "team:etl:daily",
    "b2" * 16: "counts of words",
    "c3" * 16: "team:etl:weekly",
    "d4" * 16: "key=value:1",
    "e5" * 16: "it's",
    "f6" * 16: "ops@site:1",
}
_SECONDS = 30

SHOWN_BY_BASH = r"""
PS1=
bind 'set bell-style none'; bind 'set enable-bracketed-paste off'; bind 'set page-completions off'
bind 'set completion-query-items 0'
show() {{ printf '<%s>\n' "$READLINE_LINE" >>"{shown}"; READLINE_LINE=; READLINE_POINT=0; }}
bind -x '"\C-x": show'
source "{script}"
printf 'ready\n' >>"{shown}"
"""
SHOWN_BY_ZSH = r"""
PS1=
unsetopt zle_bracketed_paste beep
autoload -Uz compinit; compinit -u -D
show() {{ print -r -- "<${{BUFFER}}>" >>"{shown}"; BUFFER= }}
zle -N show; bindkey '^X' show; bindkey '^I' complete-word
source "{script}"
print ready >>"{shown}"
"""


# In place of the real command, which takes half a second: the names that begin with the last word, or with its value.
OFFERS = r"""#!/bin/sh
[ "$1" = __complete ] || exit 1
shift
{ printf '<%s>' "$@"; echo; } >>"ASKED"
for last; do :; done
last="${last#--*=}"
printf '\n\037begin\n'
while read -r name; do
  case "$name" in "$last"*) printf '%s\tRUNNING\n' "$name" ;; esac
done <<'END'
NAMES
END
"""


def environment(tmp_path: Path, program: str) -> dict[str, str]:
    """Return the environment of a shell, in which ``emberkeep`` is ``program``."""
    place = tmp_path / "bin" / "emberkeep"
    place.parent.mkdir()
    place.write_text(program)
    place.chmod(0o700)
    return {**os.environ, "PATH": f"{place.parent}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"}


def completed(shell: str, lines: list[str], environ: dict[str, str], place: Path, capfd: Output) -> list[str]:
    """Return what Tab makes of each line in an interactive shell."""
    capfd.readouterr()
    assert main(["completion", shell]) == 0
    script, shown, start = place / "script", place / "shown", place / "start"
    script.write_text(capfd.readouterr().out)
    begin = SHOWN_BY_BASH if shell == "bash" else SHOWN_BY_ZSH
    start.write_text(begin.format(script=script, shown=shown))
    asked = ["bash", "--noprofile", "--norc", "-i"] if shell == "bash" else ["zsh", "-f", "-i"]
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        asked, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, cwd=place, start_new_session=True
    )
    os.close(theirs)
    try:
        _type(ours, f"source {start}\n", shown, 1)
        for count, line in enumerate(lines, start=2):
            _type(ours, f"{line}\t\x18", shown, count)
        return [line[1:-1] for line in shown.read_text().splitlines()[1:]]
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _type(terminal: int, keys: str, shown: Path, count: int) -> None:
    """Type ``keys``, and read what the shell prints until it has shown ``count`` lines."""
    os.write(terminal, keys.encode())
    printed, deadline = b"", time.monotonic() + _SECONDS
    while not shown.exists() or shown.read_text().count("\n") < count:
        assert time.monotonic() < deadline, printed.decode(errors="replace")
        if select.select([terminal], [], [], 0.05)[0]:
            printed += os.read(terminal, 65536)


URL = "http://jm-1:8081"
LINES = [
    ("emberkeep info team:etl:d", "emberkeep info team:etl:daily ", ""),
    ("emberkeep info t", "emberkeep info team:etl:", ""),
    ("emberkeep info team:", "emberkeep info team:etl:", ""),
    (f"emberkeep info --url {URL} team:etl:w", f"emberkeep info --url {URL} team:etl:weekly ", f"<--url><{URL}>"),
    (f"emberkeep info --url={URL} team:etl:w", f"emberkeep info --url={URL} team:etl:weekly ", URL),
    (f"emberkeep info --url '{URL}' team:etl:w", f"emberkeep info --url '{URL}' team:etl:weekly ", f"<--url><{URL}>"),
    ("emberkeep info -D rest.port=81 te", "emberkeep info -D rest.port=81 team:etl:", "<-D><rest.port=81>"),
    ("emberkeep audit --job=team:etl:d", "emberkeep audit --job=team:etl:daily ", "team:etl:d>"),
    ("emberkeep audit --job=te", "emberkeep audit --job=team:etl:", ""),
    ("emberkeep audit --job team:etl:daily --outc", "emberkeep audit --job team:etl:daily --outcome ", ""),
    (r"emberkeep info counts\ o", r"emberkeep info counts\ of\ words ", ""),
    ("emberkeep info 'counts o", "emberkeep info 'counts of words' ", ""),
    ("emberkeep info 'team:etl:d", "emberkeep info 'team:etl:daily' ", ""),
    ('emberkeep info "team:etl:d', 'emberkeep info "team:etl:daily" ', ""),
    (r"emberkeep info it\'", r"emberkeep info it\'s ", ""),
    ("emberkeep info ke", "emberkeep info key=value:1 ", ""),
    ("emberkeep info key=v", "emberkeep info key=value:1 ", ""),
    ("emberkeep info o", "emberkeep info ops@site:1 ", ""),
    ("emberkeep info ops@", "emberkeep info ops@site:1 ", ""),
    ("emberkeep info ops@s", "emberkeep info ops@site:1 ", ""),
    ("X=1 emberkeep info team:etl:d", "X=1 emberkeep info team:etl:daily ", ""),
    ("emberkeep info team:etl:zzz", "emberkeep info team:etl:zzz", ""),
    ("emberkeep info :", "emberkeep info :", ""),
    ("emberkeep info : te", "emberkeep info : te", ""),
]
"""Lines, what Tab makes of them, and what must be among the words with which the command is asked."""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_words_with_colons_spaces_and_quotes_are_completed(shell: str, tmp_path: Path, capfd: Output) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    asked = tmp_path / "asked"
    program = OFFERS.replace("ASKED", str(asked)).replace("NAMES", "\n".join(JOBS.values()))
    lines = [line for line, _, _ in LINES]
    made = completed(shell, lines, environment(tmp_path, program), tmp_path, capfd)
    assert dict(zip(lines, made, strict=True)) == {line: wanted for line, wanted, _ in LINES}
    assert [words for _, _, words in LINES if words not in asked.read_text()] == []


FILES = {
    "emberkeep backup verify pay": r"emberkeep backup verify pay\$\(touch\ ran\).py ",
    "emberkeep backup verify two": r"emberkeep backup verify two\ words\&more ",
    "emberkeep backup verify it": r"emberkeep backup verify it\'s ",
}
"""Lines that name files, and what Tab makes of them in bash."""


def test_names_of_files_are_quoted_and_never_run(tmp_path: Path, capfd: Output) -> None:
    for name in ("pay$(touch ran).py", "two words&more", "it's"):
        (tmp_path / name).touch()
    made = completed("bash", list(FILES), environment(tmp_path, "#!/bin/sh\nexit 1\n"), tmp_path, capfd)
    assert dict(zip(FILES, made, strict=True)) == FILES
    assert not (tmp_path / "ran").exists()


def test_bash_inserts_only_what_was_quoted(capfd: Output) -> None:
    """What the generated script offers is evaluated: another release of its generator may write it another way."""
    assert main(["completion", "bash"]) == 0
    offers = {line.strip() for line in capfd.readouterr().out.splitlines() if "COMPREPLY" in line}
    quoted = """{ printf -v _q '%q' "$_x"; COMPREPLY+=("$_q"); }"""
    assert {each for each in offers if not each.endswith(quoted)} == {
        "COMPREPLY=()",
        'for i in "${!COMPREPLY[@]}"; do',
        'eval "piece=${COMPREPLY[i]}"  # as printf %q has written it',
        'COMPREPLY[i]="$piece"',
    }


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("info team:etl:d", "team:etl:daily"),
        ("audit --job=team:etl:d", "--job=team:etl:daily"),
        (r"info counts\ o", "counts of words"),
        ("info 'counts o", "counts of words"),
        ('info "team:etl:d', "team:etl:daily"),
        (r"info it\'", "it's"),
        ("info --url='URL' ops@", "ops@site:1"),
    ],
)
def test_fish_completes_words_with_colons_spaces_and_quotes(
    words: str, value: str, fake: FakeJobManager, tmp_path: Path, capfd: Output
) -> None:
    fake.jobs = {job_id: job_info(job_id, name) for job_id, name in JOBS.items()}
    environ = environment(tmp_path, f'#!/bin/sh\nexec "{sys.executable}" -m emberkeep.cli.main "$@"\n')
    assert main(["completion", "fish"]) == 0
    (tmp_path / "emberkeep.fish").write_text(capfd.readouterr().out)
    asked = ["fish", "--no-config", "-c", 'source $argv[1]; complete -C "$argv[2]"']
    line = f"emberkeep {words.replace('URL', fake.url)}"
    done = subprocess.run(
        [*asked, str(tmp_path / "emberkeep.fish"), line], capture_output=True, text=True, check=True, env=environ
    )
    assert [each.split("\t")[0] for each in done.stdout.splitlines()] == [value]
