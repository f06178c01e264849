"""The manifest of a backup as bytes."""

from __future__ import annotations

import msgspec

from emberkeep.backups.model import MANIFEST_KIND, MANIFEST_VERSION, BackupDamaged, BackupManifest
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Damaged
from emberkeep.base.files.durable import decode_record, encode_record


def encode_manifest(manifest: BackupManifest) -> bytes:
    return encode_record(MANIFEST_KIND, MANIFEST_VERSION, msgspec.json.encode(manifest))


def decode_manifest(data: bytes, where: str) -> BackupManifest:
    """Return the manifest. Raises BackupDamaged, NewerFormat."""
    try:
        return from_json(decode_record(data, MANIFEST_KIND, MANIFEST_VERSION, where=where), BackupManifest)
    except (Damaged, msgspec.DecodeError) as error:
        raise BackupDamaged(f"{where}: {error}", hint="use another backup") from None
