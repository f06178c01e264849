"""Conversion of msgspec's errors about a request to refusals that name the field."""

from __future__ import annotations

import re

import msgspec

from emberkeep.base.errors import InvalidInput

_AT = re.compile(r" - at `(?:key in )?\$\.?(?P<path>[^`]*)`$")
_NAMED = re.compile(r"(?:required|unknown) field `(?P<name>[^`]*)`")


def invalid_body(error: msgspec.DecodeError) -> InvalidInput:
    """Return the refusal, with the field's path extracted from msgspec's message.

    >>> invalid_body(msgspec.ValidationError("Expected `int`, got `str` - at `$.resources.executors`")).field
    'resources.executors'
    """
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return InvalidInput(f"the body is not valid JSON: {text}", field="body")
    at = _AT.search(text)
    parts = [at["path"]] if at is not None and at["path"] else []
    named = _NAMED.search(text)
    if named is not None:
        parts.append(named["name"])
    return InvalidInput(_AT.sub("", text), field=".".join(parts) or "body")
