"""Names in a backup. A name that a damaged or forged manifest may contain is checked before it becomes a path."""

from __future__ import annotations

import re
from pathlib import Path

from emberkeep.base.errors import Damaged

MANIFEST = "manifest.record"
SEAL = "manifest.seal"
DATABASE = "jobs.sqlite"
NODES = "zookeeper.record"
TOKEN = "keys/token"  # noqa: S105 - the name of a file
CA = "keys/ca.pem"
CA_KEY = "keys/ca.key"

_NAME = re.compile(r"(?:(?:graphs|results|blobs|keys)/)?[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def graph_member(location: str) -> str:
    return f"graphs/{location}"


def result_member(location: str) -> str:
    return f"results/{location}"


def blob_member(sha256: str) -> str:
    return f"blobs/{sha256}"


def checked_name(name: str) -> str:
    """Return a member's name. Raises Damaged if it could lead out of the backup."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise Damaged(f"{name[:80]!r} is not a name of a backup's member")
    return name


def is_archive(path: Path) -> bool:
    """True if a backup of that name is one file."""
    return path.suffix == ".tar"
