"""Whether Spark's file sink can go on from a savepoint."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError

from emberkeep.lifecycle.manifest import QuerySavepoint
from emberkeep.spark.errors import RestoreRefused
from emberkeep.spark.files.hadoop import FoundFile, HadoopFiles
from emberkeep.spark.model import StartedQuery
from emberkeep.spark.queries.checkpoints import QueryIdentity
from emberkeep.spark.queries.script_queries import ScriptQuery
from emberkeep.spark.stopping.file_sink import check_file_sink, file_sink_refusal, output_directory


def test_sink_whose_log_ends_with_the_savepoint_goes_on() -> None:
    assert file_sink_refusal(7, 7) is None
    assert file_sink_refusal(-1, -1) is None, "nothing was processed"


@pytest.mark.parametrize(
    ("newest", "reason"),
    [
        (8, "already has batch 8, but the savepoint was made after batch 7"),
        (6, "has only batches up to 6"),
        (-1, "has no log of Spark's file sink"),
    ],
)
@pytest.mark.req("END-5")
def test_sink_that_would_skip_batches_or_fail_later_is_refused(newest: int, reason: str) -> None:
    refusal = file_sink_refusal(newest, 7)
    assert refusal is not None
    assert reason in refusal[0]
    assert "RollingFileSink" in refusal[1]


# --- where it writes --------------------------------------------------------------------------------------------------


class Names(tuple[str, ...]):
    """A Scala sequence."""

    def length(self) -> int:
        return len(self)

    def head(self) -> str:
        return self[0]


class HadoopPath:
    def __init__(self, *parts: Any) -> None:
        self.path = PurePosixPath(*(str(part).removeprefix("file:") for part in parts))

    def getParent(self) -> str:  # noqa: N802 - Hadoop's name
        return str(self.path.parent)

    def toString(self) -> str:  # noqa: N802
        return f"file:{self.path}"


@dataclass
class Session:
    """As much of a SparkSession as looking up tables takes. ``tables``: of Spark's own catalog, (provider, location) by
    name; ``catalogs``: the others."""

    tables: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    catalogs: tuple[str, ...] = ("lake",)
    current: str = "spark_catalog"

    @property
    def _jsparkSession(self) -> Any:  # noqa: N802 - PySpark's name
        return SimpleNamespace(sessionState=lambda: self)

    @property
    def _jvm(self) -> Any:
        path = SimpleNamespace(Path=HadoopPath)
        return SimpleNamespace(
            org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=path))),
        )

    def sqlParser(self) -> Any:  # noqa: N802
        return SimpleNamespace(parseMultipartIdentifier=self._parts, parseTableIdentifier=lambda name: name)

    def _parts(self, name: str) -> Names:
        if " " in name:
            raise Py4JError("ParseException")
        return Names(name.split("."))

    def catalogManager(self) -> Any:  # noqa: N802
        def named(name: str) -> Any:
            return SimpleNamespace(name=lambda: name)

        return SimpleNamespace(
            currentCatalog=lambda: named(self.current),
            isCatalogRegistered=lambda name: name in (*self.catalogs, "spark_catalog"),
            catalog=named,
        )

    def catalog(self) -> Any:
        return SimpleNamespace(
            tableExists=lambda name: name in self.tables,
            getTableMetadata=self._table,
            defaultTablePath=lambda name: f"file:/warehouse/{name}",
        )

    def _table(self, name: str) -> Any:
        provider, location = self.tables[name]
        found = SimpleNamespace(isDefined=lambda: provider is not None, get=lambda: provider)
        return SimpleNamespace(provider=lambda: found, location=lambda: location)


def writing(
    target: str, session: Session | None = None, method: str = "toTable", sink: str = "parquet", path: str = ""
) -> ScriptQuery:
    return ScriptQuery(
        writer=SimpleNamespace(_spark=session),
        method=method,
        positional=(),
        named={},
        key="query-q",
        name="q",
        identity=QueryIdentity(sink, "append", target),
        started=StartedQuery(None),
        reached=None,
        fields=[],
        path=path,
    )


def test_a_path_is_the_place_itself_and_another_sink_has_none() -> None:
    assert output_directory(writing("/out", method="start")) == "/out"
    assert output_directory(writing("/out", method="start", sink="Parquet")) == "/out"
    assert output_directory(writing("", method="start")) is None
    assert output_directory(writing("topic", method="start", sink="kafka")) is None


@pytest.mark.parametrize(
    ("session", "target", "path", "place"),
    [
        (Session({"t": ("parquet", "file:/tables/t")}), "t", "", "file:/tables/t"),
        (Session({"t": ("parquet", "file:/tables/t")}), "t", "/elsewhere", "file:/tables/t"),
        (Session({"spark_catalog.d.t": ("ORC", "file:/t")}, current="lake"), "spark_catalog.d.t", "", "file:/t"),
        (Session(), "t", "", "file:/warehouse/t"),
        (Session(), "d.t", "/given", "file:/given"),
        (Session(), "t", "given", "file:/warehouse/given"),
        (Session({"t": ("delta", "file:/tables/t")}), "t", "", None),
        (Session({"view": (None, "")}), "view", "", None),
        (Session(), "lake.d.t", "", None),
        (Session(current="lake"), "t", "", None),
        (Session(), "no name", "", None),
    ],
)
def test_a_table_is_where_the_catalog_says(session: Session, target: str, path: str, place: str | None) -> None:
    assert output_directory(writing(target, session, path=path)) == place


@pytest.mark.req("END-5")
def test_a_table_is_looked_at_where_it_lies() -> None:
    session = Session({"t": ("parquet", "file:/tables/t")})
    saved = QuerySavepoint(
        key="query-q",
        name="q",
        query_id="id",
        sink="parquet",
        output_mode="append",
        target="t",
        location="/checkpoints/q",
        batch_id=7,
        offsets=(),
        watermark_ms=0,
    )
    log = {"file:/tables/t/_spark_metadata": [FoundFile("6", 1), FoundFile("7.compact", 1)]}
    files = cast(HadoopFiles, SimpleNamespace(below=lambda directory: log.get(directory, [])))
    check_file_sink(files, writing("t", session), saved)
    with pytest.raises(
        RestoreRefused, match="output file:/warehouse/other of query 'q' has no log of Spark's file sink"
    ):
        check_file_sink(files, writing("other", session), saved)
    check_file_sink(files, writing("lake.t", session), saved)
