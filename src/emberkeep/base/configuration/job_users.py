"""The list in ``security.run-as``: whose jobs run as which user of the operating system."""

from __future__ import annotations

from emberkeep.base.configuration.options.security import RUN_AS
from emberkeep.base.errors import InvalidInput

ALL_OTHERS = "*"


def user_names(text: str) -> dict[str, str]:
    """Return the names of users by namespace, ``*`` for all others. Raises InvalidInput."""
    users: dict[str, str] = {}
    for entry in text.split(",") if text.strip() else ():
        namespace, equals, name = (part.strip() for part in entry.strip().rpartition("="))
        namespace = namespace if equals else ALL_OTHERS
        if not namespace or not name:
            raise refused(f"has {entry.strip()!r}, which is neither NAMESPACE=USER nor USER")
        if namespace in users:
            raise refused(f"names two users for {namespace!r}")
        users[namespace] = name
    return users


def refused(reason: str) -> InvalidInput:
    """Return the error for a value that does not fit."""
    return InvalidInput(f"{RUN_AS.key} {reason}", field=RUN_AS.key)
