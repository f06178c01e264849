"""Running scripts in-process must look, from inside and outside, as plain Python does; so each is compared with it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

_RUNNER = """
import dataclasses, json, os, sys
from pathlib import Path
from emberkeep.spark.script.cancellation import raise_on_sigterm
from emberkeep.spark.script.runner import run_module, run_script

mode, report, target, *argv = sys.argv[1:]
events = []
raise_on_sigterm(lambda: events.append("told"))
run = run_module if mode == "-m" else run_script
outcome = run(target, argv, lambda body: events.append(f"ended with {body.exit_code}"))
Path(report).write_text(json.dumps({**dataclasses.asdict(outcome), "kind": outcome.kind.value, "events": events}))
os._exit(outcome.exit_code)
"""


@dataclass(frozen=True)
class Ran:
    exit_code: int
    stdout: str
    stderr: str
    outcome: dict[str, object]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "runner").mkdir()
    (tmp_path / "runner" / "runner.py").write_text(_RUNNER)
    (tmp_path / "code").mkdir()
    return tmp_path / "code" / "job.py"


def _ours(script: Path, *argv: str, mode: str = "file", target: str | None = None) -> Ran:
    report = script.parent.parent / "report.json"
    runner = script.parent.parent / "runner" / "runner.py"
    command = [sys.executable, str(runner), mode, str(report), target or str(script), *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=script.parent)
    return Ran(done.returncode, done.stdout, done.stderr, json.loads(report.read_text()))


def _plain(script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=script.parent)


_LIKE_PLAIN = {
    "finishes": "import sys; print(sys.argv, sys.path[0], __name__, __file__, __spec__, sys.modules['__main__'])",
    "exits with a code": "import sys; sys.exit(3)",
    "exits with a large code": "import sys; sys.exit(259)",
    "exits with a text": "import sys; print('out'); sys.exit('it did not work')",
    "exits with nothing": "import sys; sys.exit()",
    "raises": "def f():\n    raise ValueError('bad')\n\nf()",
    "raises a chain": "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "raises a group": "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])",
    "has a syntax error": "x = (1,\ny = 2",
    "has no such module": "import no_such_module_anywhere",
    "leaves a thread": "import threading as t, time\nt.Thread(target=lambda: (time.sleep(0.3), print('late'))).start()",
    "leaves a pool": "from concurrent.futures import ThreadPoolExecutor as P\np = P(2)\np.submit(print, 'in pool')",
    "leaves a pool of processes": "from concurrent.futures import ProcessPoolExecutor as P\np = P(2)\n"
    "print(p.submit(abs, -3).result(), flush=True)",
    "fails in a thread": "import threading\nthreading.Thread(target=lambda: 1 / 0, name='t').start()",
    "sets an excepthook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\nraise ValueError",
    "has an excepthook that fails": "import sys\n"
    "def hook(*a):\n    1 / 0\n"
    "sys.excepthook = hook\nraise ValueError('x')",
    "has an excepthook that fails twice": "import sys\n"
    "def hook(*a):\n    try:\n        1 / 0\n    except ZeroDivisionError:\n        raise KeyError(1)\n"
    "sys.excepthook = hook\nraise ValueError('x')",
    "exits in an excepthook": "import sys\nsys.excepthook = lambda *a: sys.exit(7)\nraise ValueError",
    "says why in an excepthook": "import sys\nsys.excepthook = lambda *a: sys.exit('no')\nraise ValueError",
    "forks": "import os, sys\nif os.fork() == 0:\n    print('child')\n    sys.exit(5)\nprint(os.wait()[1])",
    "pickles its classes": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "has an exit handler": "import atexit\nx = 1\natexit.register(lambda: print(x))\nprint(0)\n1 / 0",
    "has a bad exit handler": "import atexit\natexit.register(lambda: 1 / 0)",
}


@pytest.mark.parametrize("name", _LIKE_PLAIN)
def test_script_behaves_as_under_plain_python(script: Path, name: str) -> None:
    script.write_text(_LIKE_PLAIN[name])
    plain = _plain(script, str(script), "a", "b c")
    ours = _ours(script, "a", "b c")
    unified = [re.sub(r"0x[0-9a-f]+", "0x", text) for text in (plain.stdout, plain.stderr, ours.stdout, ours.stderr)]
    assert unified[2:] == unified[:2]
    assert ours.exit_code == plain.returncode


_WITHOUT_STREAMS = {
    "closes its output": "import sys\nprint('out')\nsys.stdout.close()",
    "closes its output and fails": "import sys\nsys.stdout.close()\n1 / 0",
    "closes its output and exits with a text": "import sys\nsys.stdout.close()\nsys.exit('why')",
    "closes its errors and fails": "import sys\nsys.stderr.close()\n1 / 0",
    "closes its errors and exits with a text": "import sys\nsys.stderr.close()\nsys.exit('why')",
    "has no output": "import sys\nsys.stdout = sys.stderr = None",
    "has no output and fails": "import sys\nsys.stdout = sys.stderr = None\n1 / 0",
    "has no output and exits with a text": "import sys\nsys.stdout = sys.stderr = None\nsys.exit('why')",
    "exits with what is no text": "class Own:\n    def __str__(self): return 1 / 0\nraise SystemExit(Own())",
}


@pytest.mark.parametrize("name", _WITHOUT_STREAMS)
def test_a_script_without_its_streams_ends_as_under_plain_python(script: Path, name: str) -> None:
    script.write_text(_WITHOUT_STREAMS[name])
    plain, ours = _plain(script, str(script)), _ours(script)
    assert (ours.exit_code, ours.stdout) == (plain.returncode, plain.stdout)


@pytest.mark.parametrize(
    ("code", "kind", "exception", "message"),
    [
        ("pass", "finished", None, None),
        ("raise SystemExit(0)", "exited", None, None),
        ("raise SystemExit('why')", "exited", None, "why"),
        ("raise ValueError('bad')", "raised", "ValueError", "bad"),
        ("import json\njson.loads('{')", "raised", "json.decoder.JSONDecodeError", None),
        ("class Own(Exception):\n    def __str__(self): return 1/0\nraise Own", "raised", "Own", None),
    ],
)
def test_outcome_tells_how_the_script_ended(
    script: Path, code: str, kind: str, exception: str | None, message: str | None
) -> None:
    script.write_text(code)
    outcome = _ours(script).outcome
    assert (outcome["kind"], outcome["exception_type"]) == (kind, exception)
    if message is not None:
        assert outcome["message"] == message


def test_missing_script_is_said_as_python_says_it(script: Path) -> None:
    ran = _ours(script)
    assert ran.exit_code == 2
    assert "can't open file" in ran.stderr
    assert str(script) in str(ran.outcome["message"])


def test_modules_and_packages_run_as_with_m(script: Path) -> None:
    package = script.parent / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("from . import part\nimport sys\nprint(part.X, sys.argv, __package__)")
    (package / "part.py").write_text("import sys\nX = 1\nprint(__name__, __spec__.name, sys.path[0])")
    for target in ("package", "package.part"):
        plain = _plain(script, "-m", target, "x")
        ours = _ours(script, "x", mode="-m", target=target)
        assert (ours.stdout, ours.stderr, ours.exit_code) == (plain.stdout, plain.stderr, plain.returncode)
    missing = _ours(script, mode="-m", target="no.such.module")
    assert missing.exit_code == 1
    assert "No module named no.such.module" in missing.stderr


def test_sigterm_ends_a_script_as_cancelled_even_if_it_catches_exceptions(script: Path) -> None:
    script.write_text(
        "import os, signal, time\n"
        "while True:\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        time.sleep(60)\n"
        "    except Exception:\n"
        "        pass\n"
    )
    ran = _ours(script)
    assert ran.exit_code == 128 + signal.SIGTERM
    assert ran.outcome["kind"] == "cancelled"
    assert ran.stderr == ""


def test_forked_child_dies_of_sigterm_and_leaves_our_outcome_alone(script: Path) -> None:
    script.write_text(
        "import os, signal\n"
        "reader, writer = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.write(writer, b'x')\n"
        "    signal.pause()\n"
        "os.read(reader, 1)\n"
        "os.kill(child, signal.SIGTERM)\n"
        "print(os.WTERMSIG(os.waitpid(child, 0)[1]))\n"
    )
    ran = _ours(script)
    assert ran.stdout == f"{int(signal.SIGTERM)}\n"
    assert ran.outcome["kind"] == "finished"


def test_interrupt_is_shown_and_has_its_own_exit_code(script: Path) -> None:
    script.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nsignal.pause()")
    ran = _ours(script)
    assert ran.exit_code == 130
    assert ran.stderr.rstrip().endswith("KeyboardInterrupt")
    assert "runner.py" not in ran.stderr


@pytest.mark.req("END-1", "END-3")
@pytest.mark.parametrize(
    ("code", "exit_code", "events"),
    [
        ("", 0, ["ended with 0", "handler"]),
        ("1 / 0", 1, ["ended with 1", "handler"]),
        ("os.kill(os.getpid(), signal.SIGTERM)\nsignal.pause()", 143, ["told", "ended with 143", "handler"]),
        # With a handler of its own, which looks to the script as it has given it.
        ("own()\nos.kill(os.getpid(), signal.SIGTERM)", 0, ["told", "own", "ended with 0", "handler"]),
        ("signal.signal(signal.SIGTERM, own())\n1 / 0", 1, ["ended with 1", "handler"]),
    ],
)
def test_how_the_body_ended_and_that_it_was_told_to_is_known_before_exit_handlers_run(
    script: Path, code: str, exit_code: int, events: list[str]
) -> None:
    script.write_text(
        "import __main__, atexit, os, signal, sys\n"
        "events = sys._getframe(1)\n"
        "while 'events' not in events.f_globals: events = events.f_back\n"
        "events = events.f_globals['events']\n"
        "def own():\n"
        "    mine = lambda *_: events.append('own')\n"
        "    before = signal.signal(signal.SIGTERM, mine)\n"
        "    assert signal.getsignal(signal.SIGTERM) is mine\n"
        "    return before\n"
        "atexit.register(lambda: events.append('handler'))\n" + code
    )
    ran = _ours(script)
    assert ran.exit_code == exit_code, ran.stderr
    assert ran.outcome["events"] == events
