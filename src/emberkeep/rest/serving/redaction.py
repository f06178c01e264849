"""Hides secret values where settings are shown. Stored and used settings stay unchanged."""

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
    """True if the value of a setting must not be shown.

    Its option decides; if it has none, the key's name and the form of the value do.
    """
    option = REGISTRY.get(key)
    if option is not None:
        return option.secret
    return bool(_SECRET_KEY.search(key) or _SECRET_VALUE.search(value))


def redacted(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with secret values replaced by ``******``."""
    return {key: HIDDEN if is_secret(key, value) else value for key, value in settings.items()}
