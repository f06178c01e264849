"""What a JobManager notes when it becomes the leader, and when it stops leading. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from emberkeep.base.errors import Conflict
from emberkeep.chronicle.occurrence import SETTING, Occurrence, What, shortened

_MOST_SETTINGS: Final = 100
_MOST_VALUE: Final = 60  # characters


def leader_started(address: str, name: str, epoch: int, settings: Mapping[str, str]) -> Occurrence:
    """``settings``: the options that are set and should be the same for all JobManagers; secret values are hidden."""
    return Occurrence(
        what=What.LEADER_STARTED,
        message=f"the JobManager at {address} is the leader, with epoch {epoch}",
        details={"address": address, "name": name, "epoch": str(epoch), **_as_details(settings)},
    )


def leader_ended(address: str, epoch: int, reason: str) -> Occurrence:
    return Occurrence(
        what=What.LEADER_ENDED,
        message=f"the JobManager at {address} no longer leads with epoch {epoch}: {reason}",
        details={"address": address, "epoch": str(epoch), "reason": reason},
    )


def store_in_doubt(reason: str) -> Occurrence:
    return Occurrence(
        what=What.STORE_IN_DOUBT,
        message=f"the leader decides nothing until the job store has confirmed it: {shortened(reason)}",
        details={"reason": shortened(reason)},
    )


def store_back(seconds: float) -> Occurrence:
    return Occurrence(
        what=What.STORE_BACK,
        message=f"the job store has confirmed the leader, which decided nothing for {seconds:.1f} s",
        details={"seconds": f"{seconds:.1f}"},
    )


def why_ended(error: BaseException | None, *, is_retiring: bool) -> str:
    """Return why a leader stops. ``error``: what ended it. ``is_retiring``: its process was asked to end."""
    if is_retiring:
        return "it was shut down"
    if isinstance(error, Conflict):
        return error.message
    if isinstance(error, Exception):
        return f"it failed: {error}"
    return "it gave up leadership: it lost its session with the job store, or cannot read the storage"


def configuration_changes(before: Occurrence | None, settings: Mapping[str, str]) -> Occurrence | None:
    """Return what differs from the settings of the previous leader; None if nothing does, or if they are unknown."""
    if before is None or SETTING not in before.details:
        return None
    old = {name: value for name, value in before.details.items() if name.startswith(SETTING)}
    new = _as_details(settings)
    changed = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    if not changed:
        return None
    shown = (
        f"{name.removeprefix(SETTING)}: {old.get(name, 'not set')} → {new.get(name, 'not set')}" for name in changed
    )
    return Occurrence(
        what=What.CONFIGURATION_CHANGED,
        message="the leader's settings differ from those of the previous leader: " + "; ".join(shown),
        details={"options": " ".join(name.removeprefix(SETTING) for name in changed)},
    )


def _as_details(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings as details. The empty name shows that they are known even if none is set."""
    named = sorted(settings.items())[:_MOST_SETTINGS]
    return {SETTING: "", **{SETTING + name: shortened(value, _MOST_VALUE) for name, value in named}}
