"""The id of the cluster to which a process belongs: the ownership records of the cluster's data name this id.

With ZooKeeper, operators choose the id, the same on every node. An embedded cluster draws a random id, once for each
state directory, so that no two clusters have the same id.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.options.high_availability import HA_CLUSTER_ID, HA_TYPE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Conflict, Damaged
from emberkeep.base.files.durable import create_file, make_directories
from emberkeep.base.files.errors import cannot_read, cannot_write

IDENTITY_FILE = "cluster-id"  # in the state directory of an embedded cluster
_DRAWN = re.compile(r"embedded-[0-9a-f]{16}")


def cluster_id(configuration: Configuration, layout: StateLayout) -> str:
    """Return the id of this process's cluster. Raises Unavailable, Damaged or Fatal."""
    if configuration[HA_TYPE] != "embedded":
        return configuration[HA_CLUSTER_ID]
    return _drawn_once(layout.root / IDENTITY_FILE)


def cluster_of_member(configuration: Configuration, token: str) -> str:
    """Return the cluster id of a process that may run on a different machine from the cluster's state directory.

    ``token``: the secret that all processes of an embedded cluster share. Nothing else is the same on all of them.
    """
    if configuration[HA_TYPE] != "embedded":
        return configuration[HA_CLUSTER_ID]
    return f"token-{hashlib.sha256(token.encode()).hexdigest()[:16]}"


def read_drawn_id(root: Path) -> str | None:
    """Return the id that the embedded cluster of a state directory has drawn, or None if no id was drawn yet.

    Raises what ``cluster_id`` raises.
    """
    return _read(root / IDENTITY_FILE)


def _drawn_once(path: Path) -> str:
    found = _read(path)
    if found is not None:
        return found
    try:
        make_directories(path.parent)
    except OSError as error:
        raise cannot_write(path, error) from error
    drawn = f"embedded-{secrets.token_hex(8)}"
    try:
        create_file(path, f"{drawn}\n".encode())
    except Conflict:  # another process of this cluster was faster
        return _read(path) or drawn
    return drawn


def _read(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        problem = cannot_read(path, error)
        if isinstance(problem, Absent) or _is_missing(path.parent):
            return None
        raise problem from error
    if not _DRAWN.fullmatch(text):
        raise Damaged(
            f"{path} does not contain a cluster id",
            hint="restore the file: it identifies the owner of this cluster's data",
        )
    return text


def _is_missing(directory: Path) -> bool:
    """True if the directory is known not to exist."""
    try:
        return not directory.exists()
    except OSError:
        return False
