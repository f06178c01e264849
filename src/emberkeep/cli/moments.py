"""Points in time as options name them."""

from __future__ import annotations

from emberkeep.base.errors import InvalidInput


def moment(option: str, text: str | None, now_ms: int) -> str | None:
    """Return ``text``, a time or a duration before now, as Unix milliseconds; None for no text. Raises InvalidInput."""
    from datetime import datetime

    from emberkeep.base.configuration.option_types import duration

    if text is None:
        return None
    try:
        return str(max(0, now_ms - round(duration(text) * 1000)))
    except ValueError:
        pass
    try:
        return str(max(0, round(datetime.fromisoformat(text).timestamp() * 1000)))
    except (ValueError, OverflowError, OSError):
        hint = "for example 2h, 2026-01-31T18:00 or 2026-01-31T17:00:00Z"
        raise InvalidInput(f"{option} {text}: not a duration or a time", field=option, hint=hint) from None
