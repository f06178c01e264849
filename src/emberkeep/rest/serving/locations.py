"""Checks that a savepoint's location, as a request names it, can be a directory."""

from __future__ import annotations

import re

from emberkeep.base.errors import InvalidInput
from emberkeep.jobs.checkpoints import LOCATION_LIMIT

_LOCATION = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME_LENGTH = 64  # characters that a savepoint's own directory adds


def check_location(location: str, field: str) -> None:
    """Raise InvalidInput unless ``location`` is an absolute path or a URI, short and without control characters."""
    if len(location) > LOCATION_LIMIT - _NAME_LENGTH:
        raise InvalidInput(f"{field} has {len(location)} characters", field=field, hint="choose a shorter one")
    if _CONTROL.search(location) or not _LOCATION.match(location):
        raise InvalidInput(
            f"{field}: {location[:80]!r} is not a directory",
            field=field,
            hint="give an absolute path, or a URI such as file:///path or s3://bucket/prefix",
        )
