"""Plain data that another release may have written or may read: all persisted records and all messages.

During a rolling upgrade, processes of two releases share one cluster. Three rules let each read the other's data:

- A reader ignores a field that it does not know. A process that writes a record again keeps such fields
  (``kept_fields``).
- A new field has a default, which a reader uses if the field is absent.
- A field with its default value is not written. So data that uses no new feature has exactly the shape that the
  previous release wrote, and that release can read it.

Hence a field never loses or changes its default, a field without a default never gets one, and no field is renamed. The
default of a new field is None, False, 0, "", or an empty tuple or dict: msgspec recognizes these values as defaults
wherever they come from.
"""

from __future__ import annotations

import msgspec


class Compatible(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Root of all persisted records and all messages.

    Input that users write (REST bodies, queries) does not derive from this class: there an unknown field is a mistake
    and is refused.
    """
