"""Checks of two values in requests: a BLOB's holder, and the attempt of a job for which the request acts."""

from __future__ import annotations

import re

from emberkeep.base.errors import InvalidInput
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.protocol.rest_blobs import ATTEMPT_HEADER

MAX_HOLDERS = 100  # of one upload; they are part of its URL
HOLDER_PATTERN = "[A-Za-z0-9][A-Za-z0-9._~:-]{0,199}"

_HOLDER = re.compile(HOLDER_PATTERN)
_ATTEMPT = re.compile("[1-9][0-9]{0,8}")


def parse_holder(text: str) -> str:
    """Return a holder's name, checked. Raises InvalidInput."""
    if not _HOLDER.fullmatch(text):
        raise InvalidInput(
            f"{text[:80]!r} cannot name a holder",
            field="holder",
            hint="use letters, digits, '.', '_', '~', ':' and '-', 200 at most",
        )
    return text


def parse_attempt(text: str | None) -> int:
    """Return the attempt in a request's header, checked, or NO_ATTEMPT if there is no header. Raises InvalidInput."""
    if text is None:
        return NO_ATTEMPT
    if not _ATTEMPT.fullmatch(text):
        raise InvalidInput(f"{text[:80]!r} is not an attempt number", field=ATTEMPT_HEADER, hint="send a number from 1")
    return int(text)
