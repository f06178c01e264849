"""The event log of a driver: a storage that is missing, full or hangs does not keep the script from starting."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.shared_storage.event_logs import EVENT_LOGS, FILES_KEPT
from emberkeep.daemons.driver import event_log
from emberkeep.daemons.driver.event_log import EventLogBound, prepared_event_log
from emberkeep.daemons.records.driver_spec import DriverSpec
from tests.unit.formats.golden_samples import DRIVER_SPEC

pytestmark = pytest.mark.anyio


def spec_in(storage: Path) -> DriverSpec:
    return msgspec.structs.replace(
        DRIVER_SPEC, checkpoint_root=str(storage / "checkpoints" / "job"), checkpoints_recorded=False
    )


def test_the_directory_of_the_attempt_is_made(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    directory = prepared_event_log(spec_in(tmp_path))
    assert directory == tmp_path / "checkpoints" / "job" / EVENT_LOGS / str(DRIVER_SPEC.attempt)
    assert directory.is_dir()


def test_without_the_storage_the_user_reads_why_there_is_no_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepared_event_log(spec_in(tmp_path)) is None
    assert "writes no event log" in (shown := capsys.readouterr().err)
    assert "does not exist" in shown


def test_a_storage_that_hangs_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(event_log, "require_own_place", lambda _: answers.wait(60))
    try:
        assert prepared_event_log(spec_in(tmp_path), seconds=0.05) is None
    finally:
        answers.set()
    assert "did not answer within 0.05 s" in capsys.readouterr().err


async def test_a_log_stays_within_its_bound_and_an_error_does_not_end_that(tmp_path: Path) -> None:
    spec = spec_in(tmp_path)
    keeping = asyncio.create_task(EventLogBound(spec, lambda _: (), interval=0.01).run())
    try:
        (tmp_path / "checkpoints").mkdir()
        place = tmp_path / "checkpoints" / "job" / EVENT_LOGS / str(spec.attempt) / "eventlog_v2_app-1"
        place.mkdir(parents=True)
        for number in range(1, FILES_KEPT + 4):
            (place / f"events_{number}_app-1.zstd").touch()
        async with asyncio.timeout(30):
            while len(list(place.iterdir())) > FILES_KEPT:  # noqa: ASYNC110 - files have no events
                await asyncio.sleep(0.01)
        assert not keeping.done()
    finally:
        keeping.cancel()
