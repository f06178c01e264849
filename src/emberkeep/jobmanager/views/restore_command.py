"""The command that starts a job from a savepoint, as it was submitted: for a shell. Pure.

A value that must not be shown becomes a variable of the shell, which refuses the command until somebody has set it.
Each value has one of its own. So nothing is started with a wrong password.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from emberkeep.base.redaction import HIDDEN, is_secret, redacted_arguments
from emberkeep.jobs.model import FILE_OPTIONS, Artefact, ArtefactRole, EntryPoint, EntryPointKind, JobGraph

# What clients write into a job's configuration for themselves. The name follows the savepoint's job.
_NOT_REPEATED: Final = re.compile(r"spark\.emberkeep\.|spark\.app\.name$")


def restore_command(path: str, graph: JobGraph | None) -> str:
    """Return a line for a shell that checks the savepoint at ``path``, and submits the job's code to start from it.

    ``graph``: the submission of the job that made it; None if it is no longer known. Of the job's files, only the
    script's directory is known.
    """
    words = ["emberkeep", "savepoint", "restore", shlex.quote(path)]
    if graph is None:
        return " ".join([*words, "app.py"])
    keys_of_files = {key for _, key in FILE_OPTIONS.values()}
    conf = {
        key: value
        for key, value in graph.spark_conf.items()
        if key not in keys_of_files and not _NOT_REPEATED.match(key)
    }
    variables = _Variables(graph.secrets)
    words += _files(graph.artefacts, graph.spark_conf, variables)
    words += _settings("--conf", conf, variables)
    words += _settings("-D", graph.options, variables)
    words += (f"--secret {shlex.quote(name)}" for name in graph.secrets)
    words += [_option("--namespace", graph.namespace)] if graph.namespace else []
    return " ".join([*words, _code(graph.entry_point), *_arguments(graph.arguments, variables)])


class _Variables:
    """Names of variables of the shell, each for one value. ``taken``: names that are for other values already."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def word(self, before: str, name: str) -> str:
        """Return a word of the shell that ends with a new variable, which has to be set.

        ``name``: what the value is for.
        """
        plain = "_".join(["SECRET", *re.findall(r"[A-Z0-9]+", name.upper())])  # so it is none that is set anyway
        names = itertools.chain([plain], (f"{plain}_{number}" for number in itertools.count(2)))
        variable = next(each for each in names if each not in self._taken)
        self._taken.add(variable)
        return f'{shlex.quote(before) if before else ""}"${{{variable}:?}}"'


def _files(artefacts: Iterable[Artefact], conf: Mapping[str, str], variables: _Variables) -> Iterator[str]:
    """Yield an option with the names of its files: those that were uploaded, and those that Spark fetches itself."""
    of_role: dict[ArtefactRole, list[str]] = {}
    for each in artefacts:
        of_role.setdefault(each.role, []).append(f"{each.name}#{each.fragment}" if each.fragment else each.name)
    for role, (option, key) in FILE_OPTIONS.items():
        names = [*of_role.get(role, ()), *filter(None, conf.get(key, "").split(","))]
        if names:
            # Each by itself, so that an address with a password hides none of the others.
            words = (variables.word("", option) if is_secret(key, name) else shlex.quote(name) for name in names)
            yield f"{option} {','.join(words)}"


def _settings(option: str, settings: Mapping[str, str], variables: _Variables) -> Iterator[str]:
    for key, value in sorted(settings.items()):
        if value and is_secret(key, value):  # an empty value is no secret
            yield f"{option} {variables.word(f'{key}=', key)}"
        else:
            yield _option(option, f"{key}={value}")


def _option(option: str, value: str) -> str:
    return f"{option} {shlex.quote(value)}"


def _code(entry: EntryPoint) -> str:
    code = shlex.quote(entry.source_path or entry.name)
    return f"-m {code}" if entry.kind is EntryPointKind.MODULE else code


def _arguments(arguments: Iterable[str], variables: _Variables) -> Iterator[str]:
    option = ""
    for argument in redacted_arguments(tuple(arguments)):
        name, equals, value = argument.partition("=")
        if argument == HIDDEN:
            yield variables.word("", option)
        elif equals and value == HIDDEN:
            yield variables.word(f"{name}=", name)
        else:
            yield shlex.quote(argument)
        option = argument if argument.startswith("-") else ""
