"""A driver whose node does not have the shared storage ends before its script would start from nothing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Unavailable
from emberkeep.daemons.driver import attempt as daemon
from emberkeep.daemons.driver.storage import require_checkpoints
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, DriverSpec, read_outcome
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from tests.unit.formats.golden_samples import CHECKPOINT, DRIVER_SPEC


def spec_in(directory: Path, *, own: bool = True) -> DriverSpec:
    """Of a job that has committed to a checkpoint: its own default one, or one elsewhere."""
    root = directory / "storage" / "checkpoints" / DRIVER_SPEC.graph.job_id
    location = f"{root}/1" if own else "/elsewhere/1"
    return msgspec.structs.replace(
        DRIVER_SPEC,
        checkpoint_root=str(root),
        checkpoints=(msgspec.structs.replace(CHECKPOINT, location=location),),
        directory=str(directory),
        logs=str(directory),
    )


@pytest.mark.req("SAFE-1")
def test_an_empty_mount_point_is_no_empty_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "storage").mkdir()
    spec = spec_in(tmp_path)
    with pytest.raises(Unavailable, match="checkpoints does not exist on"):
        require_checkpoints(spec)
    (tmp_path / "storage" / "checkpoints").mkdir()
    require_checkpoints(spec)


def test_a_job_without_checkpoints_there_does_not_need_it(tmp_path: Path) -> None:
    require_checkpoints(spec_in(tmp_path, own=False))
    require_checkpoints(msgspec.structs.replace(spec_in(tmp_path), checkpoints=()))


class JobMaster:
    """As far as a driver without a script needs one."""

    def __init__(self, *_: object) -> None:
        self.reported: list[AttemptOutcome] = []

    def start(self) -> None:
        pass

    def report(self, outcome: AttemptOutcome) -> bool:
        self.reported.append(outcome)
        return True

    def stop(self) -> None:
        pass

    def survey_local_state(self) -> None:
        raise AssertionError("nothing of Spark is set up")

    lease = None


@pytest.mark.req("SAFE-1")
def test_the_attempt_ends_with_the_reason_and_may_be_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon, "JobMasterThread", JobMaster)
    monkeypatch.setattr(daemon, "raise_on_sigterm", lambda _: None)
    monkeypatch.setattr(daemon, "raise_no_more", lambda: None)
    monkeypatch.setattr(os, "environ", {})
    spec = msgspec.structs.replace(spec_in(tmp_path), files=(), options={})
    assert daemon._Driver(spec, Configuration()).run() == 1
    outcome = read_outcome(tmp_path / OUTCOME_FILE)
    assert outcome is not None
    assert (outcome.kind, outcome.lasting) == (FailureKind.SETUP, False)
    assert "does not exist on" in outcome.message
