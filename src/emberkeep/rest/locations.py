"""Whether a text can name a directory that a savepoint lies in."""

from __future__ import annotations

import re

from emberkeep.base.errors import InvalidInput
from emberkeep.jobs.checkpoints import LOCATION_LIMIT

_LOCATION = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME_LENGTH = 64  # characters that a savepoint's own directory adds


def check_location(location: str, field: str) -> None:
    """Raises InvalidInput where no directory can be meant."""
    if len(location) > LOCATION_LIMIT - _NAME_LENGTH:
        raise InvalidInput(f"{field} has {len(location)} characters", field=field, hint="choose a shorter one")
    if _CONTROL.search(location) or not _LOCATION.match(location):
        raise InvalidInput(
            f"{field}: {location[:80]!r} is no directory",
            field=field,
            hint="an absolute path, or a URI such as file:///path or s3://bucket/prefix",
        )
