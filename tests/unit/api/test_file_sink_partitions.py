"""Files that Spark writes for a batch of a RollingFileSink: which have rows, whatever their columns are called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from emberkeep.api.file_sink.arrivals import Arrival
from emberkeep.api.file_sink.local_files import LocalFiles
from emberkeep.api.file_sink.model import FileFormat, Limits, SinkWriter
from emberkeep.api.file_sink.part_writer import PartWriter, SinkPlaces
from tests.property.sink_world import MemoryFrames, Row

pytestmark = pytest.mark.req("SAFE-1")

OWNER = SinkWriter(job_id="1" * 32, attempt=1, writer="w1")


class CountedFrames(MemoryFrames):
    """Writes a batch as one file of some megabytes, and notes which files it must look into."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.counted: list[int] = []

    def stage(self, frame: list[Row], directory: str) -> None:
        Path(directory).mkdir(parents=True)
        for _, megabytes in frame:
            (Path(directory) / "part-00000-c000.x.parquet").write_bytes(bytes(megabytes * 2**20))

    def rows(self, paths: Sequence[str]) -> list[int]:
        self.counted += [Path(path).stat().st_size // 2**20 for path in paths]
        return [0 for _ in paths]


@pytest.mark.parametrize(("megabytes", "counted"), [(1, [1]), (5, [])])
def test_only_a_small_file_is_asked_whether_it_has_rows(tmp_path: Path, megabytes: int, counted: list[int]) -> None:
    places = SinkPlaces(output=f"{tmp_path}/events", work=f"{tmp_path}/_emberkeep-events")
    frames = CountedFrames()
    writer = PartWriter(LocalFiles(), frames, places, OWNER, FileFormat.PARQUET, Limits(max_bytes=1), lambda: 0)
    writer.write_batch(Arrival(query="q", checkpoint="c", batch=0, plan="p0"), [("", megabytes)])
    writer.write_batch(Arrival(query="q", checkpoint="c", batch=1, plan="p1"), [("", megabytes)])
    assert frames.counted == counted * 2
    assert len(list(Path(places.output).glob("*.parquet"))) == (not counted)


class PartitionedFrames(MemoryFrames):
    """Writes a batch's rows below the directories of their partitions, beside files that Spark makes for itself."""

    def __init__(self) -> None:
        super().__init__(None)  # type: ignore[arg-type]

    def stage(self, frame: list[Row], directory: str) -> None:
        for partition, value in frame:
            place = Path(directory) / partition
            place.mkdir(parents=True)
            (place / "part-00000-c000.x.parquet").write_text(str(value))
            (place / ".part-00000-c000.x.parquet.crc").write_text("checksum")
        own = Path(directory) / "_temporary/0"
        own.mkdir(parents=True)
        (own / "part-00000-c000.x.parquet").write_text("of a task that failed")


@pytest.mark.parametrize("column", ["day", "_day", "_", ".day"])
def test_rows_of_a_partition_appear_whatever_its_column_is_called(tmp_path: Path, column: str) -> None:
    places = SinkPlaces(output=f"{tmp_path}/events", work=f"{tmp_path}/_emberkeep-events")
    writer = PartWriter(
        LocalFiles(), PartitionedFrames(), places, OWNER, FileFormat.PARQUET, Limits(max_bytes=1), lambda: 0
    )
    for batch in range(2):
        arrival = Arrival(query="q", checkpoint="c", batch=batch, plan=f"p{batch}")
        writer.write_batch(arrival, [(f"{column}=2026-01-31", batch)])
    shown = {
        str(path.parent.relative_to(places.output)): path.read_text() for path in Path(places.output).rglob("*.*t")
    }
    assert shown == {f"{column}=2026-01-31": "0"}
