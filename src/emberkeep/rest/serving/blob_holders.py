"""Who holds references to a BLOB, and for which attempt of a job somebody acts, as they come from outside."""

from __future__ import annotations

import re

from emberkeep.base.errors import InvalidInput
from emberkeep.blobs.attempt_fences import NO_ATTEMPT
from emberkeep.protocol.rest_blobs import ATTEMPT_HEADER

MAX_HOLDERS = 100  # of one upload; they are part of its address
HOLDER_PATTERN = "[A-Za-z0-9][A-Za-z0-9._~:-]{0,199}"

_HOLDER = re.compile(HOLDER_PATTERN)
_ATTEMPT = re.compile("[1-9][0-9]{0,8}")


def parse_holder(text: str) -> str:
    """Check a holder's name. Raises InvalidInput."""
    if not _HOLDER.fullmatch(text):
        raise InvalidInput(
            f"{text[:80]!r} cannot name a holder",
            field="holder",
            hint="letters, digits, '.', '_', '~', ':' and '-', 200 at most",
        )
    return text


def parse_attempt(text: str | None) -> int:
    """Check the header of a request that acts for an attempt; NO_ATTEMPT where it has none. Raises InvalidInput."""
    if text is None:
        return NO_ATTEMPT
    if not _ATTEMPT.fullmatch(text):
        raise InvalidInput(f"{text[:80]!r} is no attempt of a job", field=ATTEMPT_HEADER, hint="a number from 1 on")
    return int(text)
