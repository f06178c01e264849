"""Generates the JSON Schema of declared jobs, which is part of the wheel, from the type that reads them."""

from __future__ import annotations

import json

from emberkeep.client.declarations.declaration import schema


def render() -> str:
    """Return the whole file."""
    return json.dumps(schema(), indent=2, sort_keys=True) + "\n"
