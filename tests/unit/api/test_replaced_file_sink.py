"""A script that makes a new RollingFileSink for the same output, as one does that tries again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from emberkeep.api import RollingFileSink, rolling_file_sink
from emberkeep.api.file_sink.errors import SinkFenced
from emberkeep.api.file_sink.local_files import LocalFiles
from emberkeep.api.file_sink.part_writer import SinkPlaces
from tests.unit.api.test_file_sink_away import FileFrames, Frame

pytestmark = pytest.mark.req("END-3")


class Frames(FileFrames):
    """Spark has committed all batches, and merges files by their texts."""

    def committed(self, checkpoint: str, newest: int) -> int:
        del checkpoint
        return newest

    def merge(self, paths: Sequence[str], schema: str, directory: str, *, is_part: bool) -> None:
        del schema, is_part
        Path(directory).mkdir(parents=True)
        text = "".join(Path(path).read_text() for path in paths)
        (Path(directory) / "part-00000-m-c000.parquet").write_text(text)


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    places = SinkPlaces(output=f"{tmp_path}/events", work=f"{tmp_path}/_emberkeep-events")
    frames = Frames()

    def reach(sink: RollingFileSink, session: Any) -> tuple[LocalFiles, SinkPlaces]:
        del sink, session
        return LocalFiles(), places

    monkeypatch.setattr(RollingFileSink, "_reach", reach)
    monkeypatch.setattr(rolling_file_sink, "SparkFrames", lambda *_: frames)
    return Path(places.output)


def test_the_end_is_that_of_the_newest_sink(output: Path) -> None:
    first, second = RollingFileSink("/events"), RollingFileSink("/events")
    first(Frame([("", 1)]), 0)
    assert first.snapshot_state() is not None
    second(Frame([("", 2)]), 1)

    for sink in (first, second):  # as at a drain, or at the end of the script
        sink.prepare_to_shutdown()
        sink.notify_checkpoint_complete(1)
        sink.shutdown()

    assert [sink.snapshot_state() is None for sink in (first, second)] == [True, False]
    assert [path.read_text() for path in output.iterdir()] == ["[('', 1)][('', 2)]"]
    with pytest.raises(SinkFenced):
        first(Frame([("", 3)]), 1)
