"""The cluster's keys in a backup: its token, and its certificate authority. They are included only on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from emberkeep.adapters.backups.names import CA, CA_KEY, TOKEN
from emberkeep.adapters.backups.reading import BackupReader
from emberkeep.adapters.backups.staging import Staging
from emberkeep.adapters.http.token_file import load_token
from emberkeep.backups.model import BackupManifest
from emberkeep.base.configuration.layout import CA_FILE, StateLayout
from emberkeep.base.errors import Absent, Conflict
from emberkeep.base.files.durable import create_file
from emberkeep.base.files.private import make_private_durably
from emberkeep.base.tls.authority import CA_KEY_FILE


def key_files(layout: StateLayout) -> dict[str, Path]:
    """Return the files of a cluster's keys, by the name that they have in a backup."""
    return {TOKEN: layout.token_file, CA_KEY: layout.tls / CA_KEY_FILE, CA: layout.tls / CA_FILE}


def stage_keys(layout: StateLayout, staging: Staging) -> list[str]:
    """Copy the keys that exist on this machine, and return their names in the backup. Raises OSError."""
    names = []
    for name, path in key_files(layout).items():
        if path.exists():
            staging.write(name, path.read_bytes())
            names.append(name)
    return names


def own_token(layout: StateLayout) -> str | None:
    """Return the cluster's token, or None if there is none on this machine. Raises Fatal."""
    return load_token(layout.token_file) if layout.token_file.exists() else None


def token_in(reader: BackupReader) -> str | None:
    """Return the token in a backup, or None if the backup was made without keys."""
    try:
        return reader.read(TOKEN).decode("ascii", "replace").strip()
    except Absent:
        return None


def check_keys(layout: StateLayout, reader: BackupReader, manifest: BackupManifest) -> None:
    """Raise Conflict if the cluster has other keys than those in the backup. Raises OSError."""
    for path, data, _ in _keys(layout, reader, manifest):
        if path.exists():
            _require_same(path, data)


def install_keys(layout: StateLayout, reader: BackupReader, manifest: BackupManifest) -> None:
    """Write the keys of a backup to where the cluster expects them. Raises Conflict if other ones are there, Fatal."""
    for path, data, mode in _keys(layout, reader, manifest):
        make_private_durably(path.parent)
        try:
            create_file(path, data, mode=mode)
        except Conflict:
            _require_same(path, data)


def _keys(layout: StateLayout, reader: BackupReader, manifest: BackupManifest) -> Iterator[tuple[Path, bytes, int]]:
    """Yield the place, content and mode of each key in the backup."""
    present = {member.name for member in manifest.members}
    for name, path in key_files(layout).items():
        if name in present:
            yield path, reader.read(name), 0o644 if name == CA else 0o600


def _require_same(path: Path, data: bytes) -> None:
    if path.read_bytes().strip() != data.strip():
        raise Conflict(
            f"{path} differs from the one in the backup",
            hint="move it away to restore the lost cluster's, or use an empty state directory",
        )
