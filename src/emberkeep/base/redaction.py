"""Hides secret values where settings are shown. Stored and used settings stay unchanged."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from emberkeep.base.configuration.values import REGISTRY

HIDDEN = "******"

# Spark's own `spark.redaction.regex`, the names that cloud storage connectors use for keys, and short names of secrets
# where they are a word of their own, as in `DB_PASS` or `fs.azure.sas.container.account`.
_SECRET_KEY = re.compile(
    r"secret|password|passwd|passphrase|token|credential|(?:access|account|api|private|shared)[.\-_]?key"
    r"|connection[.\-_]?string|(?<![a-z0-9])(?:pass|pwd|pw|sas|auth)(?![a-z0-9])",
    re.I,
)
# Also `key=value` in Java options and JDBC addresses, the signature of a shared access signature (`sig=`) or of a
# presigned address, a bearer token, and a user's password in an address.
_SECRET_VALUE = re.compile(
    r"(?:password|passwd|passphrase|pwd|secret|token|credential|account[.\-_]?key|access[.\-_]?key)\s*="
    r"|[?&;]sig(?:nature)?=|x-amz-signature=|\bbearer\s+\S|-----BEGIN [A-Z ]*PRIVATE KEY|://[^/\s:@]*:[^/\s@]+@",
    re.I,
)
_OPTION = re.compile(r"--?[A-Za-z]")
_NAME = re.compile(r"-{0,2}[A-Za-z][A-Za-z0-9_.-]{0,99}")


def is_secret(key: str, value: str) -> bool:
    """True if the value of a setting must not be shown.

    If ``key`` is an option's, the option decides; otherwise the key's name and the form of the value do.
    """
    option = REGISTRY.get(key)
    if option is not None:
        return option.secret
    return bool(_SECRET_KEY.search(key) or _SECRET_VALUE.search(value))


def redacted(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with secret values replaced by ``******``."""
    return {key: HIDDEN if is_secret(key, value) else value for key, value in settings.items()}


def redacted_arguments(arguments: Sequence[str]) -> list[str]:
    """Return a script's arguments with the secrets hidden, as in ``--db-password x`` and ``DB_PASS=x``.

    The name of a value that is secret by its form stays: ``--to=https://me:x@host`` becomes ``--to=******``.
    """
    shown: list[str] = []
    follows_secret = False
    for argument in arguments:
        option = _OPTION.match(argument)
        name, equals, _ = argument.partition("=")
        names_secret = bool(_SECRET_KEY.search(name)) and (option is not None or bool(equals))
        if follows_secret and option is None:
            shown.append(HIDDEN)
        elif equals and (names_secret or (_NAME.fullmatch(name) and _SECRET_VALUE.search(argument))):
            shown.append(f"{name}={HIDDEN}")
        else:
            shown.append(HIDDEN if _SECRET_VALUE.search(argument) else argument)
        follows_secret = names_secret and not equals
    return shown
