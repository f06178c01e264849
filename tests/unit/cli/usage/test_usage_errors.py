"""Mistakes in the command line, for every command of the application: each answer says in words what is missing."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import pytest
from cyclopts import App, Argument

from emberkeep.cli.application import build_app, main
from emberkeep.cli.usage_errors import arguments_of, choices, command_of, usage_line

Output = pytest.CaptureFixture[str]
Chain = tuple[str, ...]
APP = build_app()
WITH_SCRIPT: tuple[Chain, ...] = (("run",), ("submit",), ("savepoint", "restore"), ("upgrade",))


def walk(app: App, chain: Chain = ()) -> Iterator[Chain]:
    """Yield all commands and groups of commands below ``app``."""
    for name in app:
        if not name.startswith("-"):
            yield (*chain, name)
            yield from walk(app[name], (*chain, name))


COMMANDS = sorted(set(walk(APP)))


def names_in(chain: Chain) -> list[str]:
    return [name for name in command_of(APP, chain) if not name.startswith("-")]


@functools.cache
def arguments(chain: Chain) -> list[Argument]:
    """The arguments of a command; each is asked for many times."""
    return arguments_of(APP, chain)


ACTIONS = [chain for chain in COMMANDS if command_of(APP, chain).default_command is not None]
REQUIRED = [(chain, argument.name) for chain in ACTIONS for argument in arguments(chain) if argument.required]


def own_options() -> dict[Chain, list[Argument]]:
    """The options of each command, without those that are the same as another command's: each is tried once."""
    seen: set[tuple[str, str, str]] = set()
    found: dict[Chain, list[Argument]] = {}
    for chain in ACTIONS:
        for argument in arguments(chain):
            option = (argument.name, str(argument.hint), str(argument.parameter.help))
            if argument.name.startswith("-") and option not in seen:
                seen.add(option)
                found.setdefault(chain, []).append(argument)
    return found


OWN_OPTIONS = own_options()
TAKES_ANYTHING = {*WITH_SCRIPT, ("connect", "exec")}  # the arguments of a script or of another command


def words_of(chain: Chain, *, without: str = "") -> list[str]:
    """The words of a complete call, except for one argument."""
    words = list(chain)
    for argument in arguments(chain):
        if argument.required and argument.name not in (without, "*"):
            value = next(iter(choices(argument.hint)), "x")
            words += [argument.name, value] if argument.name.startswith("-") else [value]
    return words


def answer(words: list[str], capfd: Output) -> tuple[str, str]:
    """The two lines that a mistake is answered with: the problem and the hint."""
    assert main(words) == 2, words
    out, err = capfd.readouterr()
    assert out == ""
    problem, hint = err.rstrip("\n").split("\n")
    assert problem.startswith("emberkeep: ")
    assert hint.startswith("  hint: ")
    assert not problem.endswith(".")
    for jargon in ("arameter", "Unused", "nvalid", "convert", "None", "Traceback"):
        assert jargon not in problem.removeprefix("emberkeep: ").split(":")[0]
    return problem.removeprefix("emberkeep: "), hint.removeprefix("  hint: ")


def test_the_walk_meets_all_commands() -> None:
    assert {("run",), ("node",), ("node", "evacuate"), ("taskmanager", "stop"), ("security", "bundle")} <= set(COMMANDS)
    assert {(chain, name) for chain, name in REQUIRED if chain == ("node", "evacuate")} == {
        (("node", "evacuate"), "NODE"),
        (("node", "evacuate"), "--cause"),
    }


@pytest.mark.parametrize(("chain", "name"), REQUIRED, ids=lambda value: value if isinstance(value, str) else None)
def test_a_missing_argument_is_named_and_explained(chain: Chain, name: str, capfd: Output) -> None:
    words = words_of(chain, without=name)
    if not name.startswith("-"):  # what is positional and comes later would take its place
        earlier = itertools.takewhile(lambda argument: argument.name != name, arguments(chain))
        words = [*chain, *("x" for argument in earlier if not argument.name.startswith("-"))]
    problem, hint = answer(words, capfd)
    what, _, meaning = problem.partition(": ")
    assert what == f"{name} is missing"
    assert len(meaning) > 5
    assert f"`{usage_line(('emberkeep', *chain), arguments(chain))}`" in hint


def test_the_cause_of_an_evacuation_is_asked_for(capfd: Output) -> None:
    assert answer(["node", "evacuate", "node-7"], capfd) == (
        "--cause is missing: the reason, shown to everyone who lists the nodes",
        "`emberkeep node evacuate NODE --cause TEXT`; `emberkeep node evacuate --help` shows what is possible",
    )


@pytest.mark.parametrize("chain", OWN_OPTIONS, ids="-".join)
def test_an_option_without_its_value_is_named_and_explained(chain: Chain, capfd: Output) -> None:
    for argument in OWN_OPTIONS[chain]:
        if argument.token_count()[0] == 0:
            continue
        for name in (name for name in argument.names if not name.startswith("--empty-")):
            problem, hint = answer([*words_of(chain), name], capfd)
            what, _, meaning = problem.partition(": ")
            assert what == f"{name} needs a value"
            assert len(meaning) > 5
            assert argument.name in hint


@pytest.mark.parametrize("chain", OWN_OPTIONS, ids="-".join)
def test_a_value_that_cannot_be_read_is_told_with_what_is_expected(chain: Chain, capfd: Output) -> None:
    for argument in OWN_OPTIONS[chain]:
        kinds = choices(argument.hint)
        if kinds or "int" in str(argument.hint):
            expected = kinds[-1] if kinds else "a whole number"
            words = [*words_of(chain, without=argument.name), argument.name, "nonsense"]
            problem, _ = answer(words, capfd)
            assert problem.startswith(f"{argument.name} nonsense: expected ")
            assert problem.endswith(expected)
        elif argument.hint is bool:
            problem, _ = answer([*words_of(chain), f"{argument.name}=7"], capfd)
            assert problem == f"{argument.name} is a switch and takes no value"


@pytest.mark.parametrize("chain", ACTIONS, ids="-".join)
def test_an_unknown_option_is_told(chain: Chain, capfd: Output) -> None:
    problem, hint = answer([*words_of(chain), "--nonsense=1"], capfd)
    assert problem == f"--nonsense: `emberkeep {' '.join(chain)}` has no such option"
    assert hint == f"`emberkeep {' '.join(chain)} --help` shows what is possible"


@pytest.mark.parametrize("chain", OWN_OPTIONS, ids="-".join)
def test_an_option_that_is_almost_right_is_suggested(chain: Chain, capfd: Output) -> None:
    name = max((argument.name for argument in OWN_OPTIONS[chain]), key=len)
    _, hint = answer([*words_of(chain), f"{name}s=1"], capfd)
    assert hint.startswith(f"did you mean {name}? ")


@pytest.mark.parametrize("chain", [chain for chain in ACTIONS if chain not in TAKES_ANYTHING], ids="-".join)
def test_a_word_too_many_is_told(chain: Chain, capfd: Output) -> None:
    places = [argument for argument in arguments(chain) if argument.index is not None and not argument.required]
    positional = len(places) + sum(not each.name.startswith("-") and each not in places for each in arguments(chain))
    problem, _ = answer([*words_of(chain), *["x"] * positional, "nonsense"], capfd)
    said = f"nonsense: `emberkeep {' '.join(chain)}` has no such command"
    assert problem == said or problem.split(":")[0] in ("'nonsense' is too much", "'x' is too much")
    takes_none = all(argument.index is None for argument in arguments(chain))
    assert problem == said or ("takes no arguments" in problem) is takes_none, problem


@pytest.mark.parametrize("chain", [(), *(chain for chain in COMMANDS if names_in(chain))], ids=str)
def test_an_unknown_command_is_told_and_the_one_that_was_meant(chain: Chain, capfd: Output) -> None:
    for name in (name for name in names_in(chain) if len(name) > 3):
        problem, hint = answer([*chain, f"{name}x"], capfd)
        assert problem == f"{name}x: `{' '.join(('emberkeep', *chain))}` has no such command"
        assert hint.startswith(f"did you mean {name}? ")


def test_an_option_that_is_given_twice(capfd: Output) -> None:
    problem, hint = answer(["node", "block", "n", "--cause", "a", "--cause", "b"], capfd)
    assert problem == "--cause is given more than once"
    assert hint.startswith("give it once; ")


def test_an_option_before_its_command(capfd: Output) -> None:
    problem, _ = answer(["-D", "rest.port=1", "list"], capfd)
    assert problem == "-D: an option comes after its command"
