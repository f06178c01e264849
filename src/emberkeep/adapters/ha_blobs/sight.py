"""Tells a place of BLOBs that is not mounted here from an empty one, for processes that read and do not lead."""

from __future__ import annotations

from emberkeep.adapters.ha_blobs.owner_record import open_blob_owner_record
from emberkeep.adapters.ha_blobs.place import BINDING_FILE, read_binding
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.blobs import BLOB_HA_STORAGE
from emberkeep.base.errors import Damaged, NewerFormat, Unavailable


def require_in_sight(layout: StateLayout) -> None:
    """Raise Unavailable if the storage was used with a place of BLOBs that has no ownership record now. Blocks."""
    location = layout.configuration[BLOB_HA_STORAGE]
    try:
        binding = read_binding(layout.storage_record / BINDING_FILE)
        was_used = binding is not None and binding.location == location and bool(binding.place_id)
        if location and was_used and open_blob_owner_record(location).read() is None:
            raise Unavailable(
                f"the HA store {location} is empty or does not exist, but the storage was used with it",
                hint="check the location and that it is mounted here",
            )
    except (Damaged, NewerFormat):  # of a record: the place is there
        return
