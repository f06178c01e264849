"""Mistakes in a command line, told in words: what is missing or wrong, what is expected there, and how to call it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from cyclopts import App, Argument
from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

_CLOSE = 0.7  # ratio of equal letters from which on a name may be meant
_NUMBERS = {int: "a whole number", float: "a number"}


def usage_problem(app: App, error: CycloptsError) -> tuple[str, str]:
    """Return what is wrong with the command line, and a hint."""
    chain = tuple(error.command_chain or ())
    called = " ".join((app.name[0], *chain))
    shows = f"`{called} --help` shows what is possible"
    match error:
        case MissingArgumentError(argument=Argument() as argument):
            arguments = arguments_of(app, chain)
            usage = usage_line((app.name[0], *chain), arguments, also=argument.name)
            return _missing(arguments, argument, error.keyword), f"`{usage}`; {shows}"
        case CoercionError(argument=Argument() as argument):
            return _unreadable(error, argument), shows
        case UnknownOptionError():
            option = (error.token.keyword or error.token.value).split("=", 1)[0]
            names = (name for each in error.argument_collection for name in each.names)
            return f"{option}: `{called}` has no such option", _meant(option, names, shows)
        case RepeatArgumentError():
            return f"{error.token.keyword} is given more than once", f"give it once; {shows}"
        case UnknownCommandError() | UnusedCliTokensError():
            return _left_over(app, chain, called, (error.unused_tokens or [""])[0], shows)
    return str(error).rstrip("."), shows


def usage_line(called: Sequence[str], arguments: Sequence[Argument], *, also: str = "") -> str:
    """Return how to call the command, with its required arguments: "emberkeep node block NODE --cause TEXT".

    ``also`` names an argument that is included even if it is optional.
    """
    words = [*called]
    for argument in arguments:
        if not argument.required and argument.name != also:
            continue
        name = argument.name
        words += [name, _placeholder(argument)] if name.startswith("-") else [name]
    return " ".join(words)


def arguments_of(app: App, chain: Sequence[str]) -> list[Argument]:
    """Return the arguments of the command, each with its help."""
    collection = command_of(app, chain).assemble_argument_collection(parse_docstring=True)
    # Classes that hold a row of options are arguments, too: those with children.
    return [each for each in collection if not each.children]


def command_of(app: App, chain: Sequence[str]) -> App:
    """Return the command that ``chain`` names below ``app``."""
    for name in chain:
        app = app[name]
    return app


def _placeholder(argument: Argument) -> str:
    """Return what stands for the value of an option in a usage line."""
    return argument.parameter.metavar or "|".join(choices(argument.hint)) or argument.name.lstrip("-").upper()


def choices(hint: Any) -> list[str]:
    """Return the words that the type ``hint`` accepts; none if it accepts any."""
    if get_origin(hint) is Literal:
        return [str(each) for each in get_args(hint)]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [str(each.value) for each in hint]
    return [word for each in get_args(hint) for word in choices(each)]


def _missing(arguments: Sequence[Argument], argument: Argument, keyword: str | None) -> str:
    what = f"{keyword} needs a value" if keyword else f"{argument.name} is missing"
    expected = choices(argument.hint)
    meaning = _alternatives(expected) if expected else _meaning(arguments, argument)
    return f"{what}: {meaning}" if meaning else what


def _meaning(arguments: Sequence[Argument], argument: Argument) -> str:
    """Return the first sentence of the argument's help, as a phrase."""
    text = next((str(each.parameter.help or "") for each in arguments if each.name == argument.name), "")
    sentence = " ".join(text.split()).split(". ")[0].rstrip(".")
    begins_with_name = sentence[:2].isupper() or sentence[1:2].isupper()
    return sentence if begins_with_name else sentence[:1].lower() + sentence[1:]


def _unreadable(error: CoercionError, argument: Argument) -> str:
    token = error.token
    name = (token.keyword if token is not None else None) or argument.name
    if token is None or argument.hint is bool:
        return f"{name} is a switch and takes no value"
    said = f"{name} {token.value}"
    expected = choices(argument.hint)
    if expected:
        return f"{said}: expected {_alternatives(expected)}"
    kinds = [kind for each in (argument.hint, *get_args(argument.hint)) if (kind := _NUMBERS.get(each))]
    return f"{said}: expected {kinds[0]}" if kinds else f"{said}: {str(error).rstrip('.')}"


def _left_over(app: App, chain: Sequence[str], called: str, word: str, shows: str) -> tuple[str, str]:
    """Return the problem with a word that nothing takes: an unknown command, or an argument too many."""
    names = [name for name in command_of(app, chain) if not name.startswith("-")]
    if not names:
        # Some options may be given by their place, too: `emberkeep apply FILE`.
        placed = [each for each in arguments_of(app, chain) if each.index is not None]
        wanted = [_placeholder(each) if each.name.startswith("-") else each.name for each in placed]
        takes = f"takes only {' and '.join(wanted)}" if wanted else "takes no arguments, only options"
        return f"{word!r} is too much: `{called}` {takes}", shows
    if word.startswith("-"):
        return f"{word}: an option comes after its command", shows
    return f"{word}: `{called}` has no such command", _meant(word, names, shows)


def _meant(word: str, names: Iterable[str], shows: str) -> str:
    close = max(_ratios(word, names), default=(0.0, ""))
    return f"did you mean {close[1]}? {shows}" if close[0] >= _CLOSE else shows


def _ratios(word: str, names: Iterable[str]) -> Iterator[tuple[float, str]]:
    """Yield how alike ``word`` and each name are. Dashes do not count."""
    for name in names:
        yield difflib.SequenceMatcher(None, word.strip("-"), name.strip("-")).ratio(), name


def _alternatives(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
