"""A savepoint that another Spark or a newer Emberkeep has made says so, and is never called damaged for it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from emberkeep.base.errors import InvalidInput, NewerFormat
from emberkeep.base.files.durable import encode_record
from emberkeep.base.ids import JobId
from emberkeep.daemons.jobmanager.savepoint_store import SavepointStore
from emberkeep.lifecycle.manifest import MANIFEST_KIND, MANIFEST_NAME, MANIFEST_VERSION
from emberkeep.lifecycle.spark_versions import judge
from emberkeep.spark.errors import RestoreRefused
from emberkeep.spark.files.state_locations import DirectLocations
from emberkeep.spark.functions import states as function_states
from emberkeep.spark.functions.states import FunctionStates
from emberkeep.spark.notices import Notices
from emberkeep.spark.queries.checkpoint_places import CheckpointPlaces
from emberkeep.spark.stopping import restore
from emberkeep.spark.stopping.restore import Restore
from emberkeep.spark.stopping.savepoint_storage import SavepointStorages
from tests.unit.formats import golden_samples as samples
from tests.unit.spark.files.files_on_disk import files_on_disk

pytestmark = [pytest.mark.anyio, pytest.mark.req("SAFE-14")]

HERE = "4.3.0"
EMPTY = msgspec.structs.replace(samples.MANIFEST, queries=(), files=(), functions=(), spark_version=HERE)


def _write(directory: Path, *, spark: str = HERE, version: int = MANIFEST_VERSION) -> str:
    directory.mkdir(exist_ok=True)
    payload = msgspec.json.encode(msgspec.structs.replace(EMPTY, spark_version=spark))
    (directory / MANIFEST_NAME).write_bytes(encode_record(MANIFEST_KIND, version, payload))
    return str(directory)


def _restore(savepoint: str, place: Path) -> Restore:
    """Of a job that starts from a savepoint, without Spark."""
    job_id, notices = JobId("e" * 32), Notices()
    places = CheckpointPlaces(lambda: None, (), notices)
    states = FunctionStates(str(place), job_id, 1, DirectLocations(), places, lambda: None, notices)
    storages = SavepointStorages(lambda _: None, place / "staging")
    return Restore(savepoint, job_id, storages, states, lambda: None, notices)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (restore, function_states):
        monkeypatch.setattr(module, "HadoopFiles", lambda _: files_on_disk())
    monkeypatch.setattr(restore, "spark_version", lambda: HERE)


@pytest.mark.parametrize("made_with", ["4.3.0", "4.3.7"])
def test_maintenance_releases_read_each_others(made_with: str) -> None:
    verdict = judge(made_with, HERE)
    assert (verdict.refusal, verdict.warning) == ("", "")


@pytest.mark.parametrize("made_with", ["4.4.0", "4.10.1", "5.0.0"])
@pytest.mark.usefixtures("without_spark")
def test_a_newer_sparks_is_refused_before_anything_is_read(tmp_path: Path, made_with: str) -> None:
    starting = _restore(_write(tmp_path / "savepoint", spark=made_with), tmp_path / "job")
    with pytest.raises(RestoreRefused, match=f"made with Spark {made_with}; Spark {HERE} is older"):
        starting.function_states(None)


@pytest.mark.parametrize("made_with", ["4.2.3", "3.5.0", "unknown"])
@pytest.mark.usefixtures("without_spark")
def test_an_older_sparks_starts_and_warns(tmp_path: Path, made_with: str, capsys: pytest.CaptureFixture[str]) -> None:
    starting = _restore(_write(tmp_path / "savepoint", spark=made_with), tmp_path / "job")
    assert starting.function_states(None) == {}
    said = capsys.readouterr().err
    assert "warning: the savepoint" in said
    assert made_with in said


@pytest.mark.usefixtures("without_spark")
def test_a_newer_emberkeeps_is_refused_and_not_damaged(tmp_path: Path) -> None:
    where = _write(tmp_path / "savepoint", version=MANIFEST_VERSION + 1)
    with pytest.raises(NewerFormat, match="intact, but a newer release made it"):
        _restore(where, tmp_path / "job").function_states(None)


async def test_verify_warns_of_another_spark(tmp_path: Path) -> None:
    store = SavepointStore(HERE)
    for made_with, said in (("4.4.0", "is older"), ("4.2.0", "migration guide")):
        check = await store.verify(_write(tmp_path / "savepoint", spark=made_with))
        assert check.problems == []
        (warning,) = check.warnings
        assert said in warning
    assert (await store.verify(_write(tmp_path / "savepoint"))).warnings == []


async def test_verify_of_a_newer_emberkeeps_says_so_and_dispose_leaves_it(tmp_path: Path) -> None:
    where = _write(tmp_path / "savepoint", version=MANIFEST_VERSION + 1)
    (problem,) = (await SavepointStore(HERE).verify(where)).problems
    assert "newer release" in problem
    assert "damaged" not in problem
    with pytest.raises(InvalidInput, match="newer release"):
        await SavepointStore(HERE).dispose(where)
    assert (tmp_path / "savepoint" / MANIFEST_NAME).exists()
