"""Partitions of a RollingFileSink whose columns have unusual names: no row is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from emberkeep.api.file_sink.arrivals import Arrival
from emberkeep.api.file_sink.local_files import LocalFiles
from emberkeep.api.file_sink.model import FileFormat, Limits, SinkWriter
from emberkeep.api.file_sink.part_writer import PartWriter, SinkPlaces
from tests.property.sink_world import MemoryFrames, Row

pytestmark = pytest.mark.req("SAFE-1")

OWNER = SinkWriter(job_id="1" * 32, attempt=1, writer="w1")


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
