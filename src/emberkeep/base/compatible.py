"""Plain data that another release may have written, or may read: everything persisted, and every message.

During a rolling upgrade, processes of two releases share one cluster. Three rules let each read the other's data:

- A field that a reader does not know is ignored. Who writes a record again keeps such fields (``kept_fields``).
- A field that is added has a default, and a reader takes it where the field is absent.
- A field with its default value is not written. So whatever uses no new feature has the exact shape that the release
  before wrote, and that release reads it again.

Hence a field never loses or changes its default, a field without one never gets one, and none is renamed. The default
of a new field is None, False, 0, "", or an empty tuple or dict: msgspec recognizes those wherever they come from.
"""

from __future__ import annotations

import msgspec


class Compatible(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Root of all persisted records and of all messages. What a person writes (REST bodies, queries) is not one of
    these: there an unknown field is a mistake, which is refused."""
