"""The values of ``--secret NAME[=FILE]``: from the command's environment, or from a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from emberkeep.base.errors import InvalidInput
from emberkeep.jobs.job_secrets import LONGEST_SECRET, check_secrets

_OPTION = "--secret"


def secret_values(words: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets by name. Raises InvalidInput, with no value in its message."""
    values: dict[str, str] = {}
    for word in words:
        name, has_file, path = word.partition("=")
        if name in values:
            raise InvalidInput(f"the secret {name} is given twice", field=_OPTION)
        values[name] = _from_file(name, Path(path)) if has_file else _from_environment(name, environ)
    check_secrets(values)
    return values


def _from_environment(name: str, environ: Mapping[str, str]) -> str:
    if not name:
        raise InvalidInput(
            f"{_OPTION} names no variable", field=_OPTION, hint=f"write {_OPTION} NAME, or {_OPTION} NAME=FILE"
        )
    if not environ.get(name):
        raise InvalidInput(
            f"the environment has no variable {name}, or an empty one",
            field=_OPTION,
            hint=f"export {name}, or name a file: {_OPTION} {name}=FILE",
        )
    return environ[name]


def _from_file(name: str, path: Path) -> str:
    """Return the file's text without the line end that editors add."""
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_SECRET + 2)
        return data.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        # Not the path: it is the value itself if the user has mistaken FILE for VALUE.
        raise InvalidInput(
            f"cannot read the file of the secret {name}: {error.strerror}",
            field=_OPTION,
            hint=f"{_OPTION} NAME=FILE takes the name of a file, {_OPTION} NAME the variable of that name",
        ) from None
    except UnicodeDecodeError:
        raise InvalidInput(f"the file of the secret {name} is not UTF-8 text", field=_OPTION) from None
