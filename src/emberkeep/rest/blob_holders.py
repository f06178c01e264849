"""Names of those who hold references to a BLOB, as they come from outside."""

from __future__ import annotations

import re

from emberkeep.base.errors import InvalidInput

MAX_HOLDERS = 100  # of one upload; they are part of its address
HOLDER_PATTERN = "[A-Za-z0-9][A-Za-z0-9._~:-]{0,199}"

_HOLDER = re.compile(HOLDER_PATTERN)


def parse_holder(text: str) -> str:
    """Check a holder's name. Raises InvalidInput."""
    if not _HOLDER.fullmatch(text):
        raise InvalidInput(
            f"{text[:80]!r} cannot name a holder",
            field="holder",
            hint="letters, digits, '.', '_', '~', ':' and '-', 200 at most",
        )
    return text
