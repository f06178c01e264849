"""Hides secret values where settings are shown. The settings themselves are stored and used as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping

from emberkeep.base.configuration.values import REGISTRY

HIDDEN = "******"

# Spark's own `spark.redaction.regex`, and the names that cloud storage connectors use for keys.
_SECRET_KEY = re.compile(
    r"secret|password|passwd|token|credential|access[.\-_]?key|account[.\-_]?key|api[.\-_]?key", re.I
)
_SECRET_VALUE = re.compile(
    r"(?:password|passwd|secret|token)\s*=|-----BEGIN [A-Z ]*PRIVATE KEY|://[^/\s:@]+:[^/\s@]+@", re.I
)


def is_secret(key: str, value: str) -> bool:
    """Whether the value of a setting must not be shown: by its option, its key's name or what it looks like."""
    option = REGISTRY.get(key)
    if option is not None:
        return option.secret
    return bool(_SECRET_KEY.search(key) or _SECRET_VALUE.search(value))


def redacted(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings with secret values replaced by ``******``."""
    return {key: HIDDEN if is_secret(key, value) else value for key, value in settings.items()}
