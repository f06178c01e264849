"""The mutants of a module, and what becomes of them."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants import __main__ as mutants_main
from tools.mutants.mutations import mutations
from tools.mutants.packages import PACKAGES, ROOT
from tools.mutants.spoiled_module import module_name


def texts(source: str) -> list[str]:
    """The mutants of ``source``, each with its line, in their order."""
    found = []
    for number in range(len(list(mutations(ast.parse(source))))):
        tree = ast.parse(source)
        list(mutations(tree))[number].apply()
        found.append(ast.unparse(ast.fix_missing_locations(tree)))
    return found


@pytest.mark.parametrize(
    ("source", "mutants"),
    [
        ("a = x < y", ["a = x <= y"]),
        ("a = x is not None", ["a = x is None"]),
        ("a = x and y", ["a = x or y"]),
        ("a = x + 1", ["a = x - 1", "a = x + 2"]),
        ("x -= y", ["x += y", "pass"]),
        ("x = not y", ["x = not not y"]),
        ("x = True", ["x = False"]),
        ("x = min(y)", ["x = max(y)"]),
        ("x = y if z else w", ["x = y if not z else w"]),
        ("self.x = y", ["pass"]),
        ("del x[y]", ["pass"]),
        ("def f():\n    return x", ["def f():\n    return None"]),
        ("def f():\n    return False", ["def f():\n    return True"]),
        ("if x:\n    f(x)", ["if x:\n    pass", "if not x:\n    f(x)"]),
    ],
)
def test_what_is_changed(source: str, mutants: list[str]) -> None:
    assert sorted(texts(source)) == sorted(mutants)


@pytest.mark.parametrize(
    "source",
    [
        '"""Text."""',
        "import x",
        "def f(x: int | None = None) -> bool | None: ...",
        "assert x < 1, f'{x + 1}'",
        "raise ValueError(x + 1)",
        "log.info('x', y=x + 1)",
        "logger.warning('%s', x)",
        "def check_invariants():\n    f(1)",
        "x = 'a' + 'b'",
        "UNKNOWN = -1",
        "Event = Added | Removed",
        "_LONG = 4",
        "class Job(Struct, frozen=True): ...",
        "del unused, arguments",
    ],
)
def test_what_stays(source: str) -> None:
    assert texts(source) == []


def test_all_packages_are_there_with_their_tests() -> None:
    for package in PACKAGES.values():
        assert list(package.files())
        for tests in package.stages:
            assert [test for test in tests if not (ROOT / test).exists()] == []


def test_a_name_and_its_file() -> None:
    assert module_name(ROOT / "src/emberkeep/slots/pool/machine.py") == "emberkeep.slots.pool.machine"


def test_a_process_imports_the_mutant_and_no_other(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; from pathlib import Path\n"
        "from tools.mutants.packages import ROOT\n"
        "from tools.mutants.spoiled_module import spoil\n"
        "spoil(ROOT / 'src/emberkeep/leadership/takeover.py', int(sys.argv[1]))\n"
        "from emberkeep.leadership import machine, takeover\n"
        "print(type(takeover.__loader__).__name__, type(machine.__loader__).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script), "0"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.split() == ["_Loader", "SourceFileLoader"]


def test_tests_that_hang_without_a_mutant_are_ended_and_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    sleepers: list[subprocess.Popen[bytes]] = []

    def start(mutant: object, tests: tuple[str, ...]) -> int:
        sleepers.append(subprocess.Popen(["sleep", "60"], start_new_session=True))
        return sleepers[-1].pid

    monkeypatch.setattr(mutants_main, "start", start)
    monkeypatch.setattr(mutants_main, "TIMEOUT", 0.1)
    with pytest.raises(SystemExit, match="tests fail without a mutant"):
        mutants_main.check_unspoiled(["leadership"])
    sleepers[0].returncode = -9  # reaped already
    assert len(sleepers) == 1
