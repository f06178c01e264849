"""Where the JobManager reads a progress history: from the driver, or else from the storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.adapters.shared_storage.progress_files import write_progress
from emberkeep.base.errors import Conflict, EmberkeepError, InvalidInput, RetryLater
from emberkeep.base.ids import JobId
from emberkeep.daemons.jobmanager.progress_histories import StoredProgressHistories
from emberkeep.jobs.progress.history import HistoryPage, QueryHistory, Selection
from emberkeep.jobs.progress.kept_progress import KeptProgress
from emberkeep.protocol.messages.job_masters import ProgressRead, ReadProgress
from emberkeep.protocol.messages.root import Message
from tests.support.memory_rpc import MemoryNetwork
from tests.support.progress.records import record
from tests.support.scripted_service import ScriptedService

pytestmark = pytest.mark.anyio
JOB = JobId("a" * 32)
SELECTION = Selection(limit=5)
LIVE = HistoryPage(records=(record(9),))


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    history = QueryHistory(query_id="q-1", records=(record(1, recorded_ms=1), record(2, recorded_ms=2)))
    write_progress(tmp_path / JOB, 1, KeptProgress(queries=(history,)))
    return tmp_path


class Refusing:
    def __init__(self, error: EmberkeepError) -> None:
        self._error = error

    async def serve(self, request: Message) -> Message:
        raise self._error


async def test_a_driver_is_asked_first(stored: Path) -> None:
    network, driver = MemoryNetwork(), ScriptedService({ReadProgress: ProgressRead(page=LIVE)})
    network.attach("driver:1", driver)
    assert await StoredProgressHistories(network, stored).read("driver:1", JOB, 2, SELECTION) == LIVE
    assert driver.requests == [ReadProgress(job_id=JOB, attempt=2, selection=SELECTION)]


@pytest.mark.parametrize("error", [RetryLater("it ends"), InvalidInput("a JobMaster of 0.1.0 does not serve this")])
async def test_what_a_driver_does_not_answer_is_read_from_the_storage(stored: Path, error: EmberkeepError) -> None:
    network = MemoryNetwork()
    network.attach("driver:1", Refusing(error))
    for address in ("", "driver:1", "gone:1"):
        page = await StoredProgressHistories(network, stored).read(address, JOB, 1, SELECTION)
        assert [one.batch_id for one in page.records] == [1, 2]


async def test_a_driver_of_another_attempt_is_a_conflict(stored: Path) -> None:
    network = MemoryNetwork()
    network.attach("driver:1", Refusing(Conflict("attempt 1 is over")))
    with pytest.raises(Conflict):
        await StoredProgressHistories(network, stored).read("driver:1", JOB, 1, SELECTION)
