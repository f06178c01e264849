"""A world: everything that decides a simulated history, as a small JSON file.

A world is explicit: its cluster, jobs and faults are listed, not drawn again from a number. So a file that is kept
plays the same history although the way worlds are drawn has changed, and shrinking a world means leaving things out.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from emberkeep.lifecycle.model import Procedure
from tests.support.simulator.cluster import ClusterPlan
from tests.support.simulator.scripts import Script

VERSION = 1


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a savepoint or a stop."""

    at: float
    procedure: Procedure


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that a client submits, and what the client asks of it. Times are in virtual seconds."""

    at: float
    script: Script
    cancel_at: float | None = None
    ask: Ask | None = None


class PlannedFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault. ``number`` seeds its choices, so that they stay the same when other faults are left out."""

    at: float
    kind: str
    number: int


class World(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A simulated history before it is played. ``shortest`` and ``longest``: seconds that lasting faults take."""

    version: int = VERSION
    family: str
    plan: ClusterPlan
    jobs: tuple[PlannedJob, ...]
    faults: tuple[PlannedFault, ...]
    chaos_seconds: float
    shortest: float
    longest: float


class KeptWorld(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A world that is kept as a regression test. ``found``: what it has found."""

    found: str
    world: World


def encode(kept: KeptWorld) -> bytes:
    return msgspec.json.format(msgspec.json.encode(kept), indent=1) + b"\n"


def read(path: Path) -> KeptWorld:
    """Read a kept world. Raises ValueError that names the file if it is damaged or of a newer version."""
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=KeptWorld)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{path} is no world of version {VERSION}: {error}") from error
    if kept.world.version != VERSION:
        raise ValueError(f"{path} has version {kept.world.version}, this checkout reads version {VERSION}")
    return kept
