"""Labels of streaming queries and their sources: names where there are any, each at most once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emberkeep.jobs.progress.records import SourceProgress
from emberkeep.protocol.messages.job_master_reports import QueryProgress

_LONGEST = 120  # characters of a name
_ID = 8  # characters of a query's id that tell it from another of the same name


def query_labels(queries: Iterable[QueryProgress]) -> Iterator[tuple[str, QueryProgress]]:
    """Yield each query with its label. Prometheus rejects a whole scrape in which two series have the same labels.

    An unnamed query has the name of its checkpoint's directory. Of two queries with one name, the second has its id in
    its label as well; a query that is listed twice is yielded once.
    """
    used: set[str] = set()
    for query in queries:
        label = _name(query)
        if label in used:
            label = f"{label}-{query.id[:_ID]}"
        if label not in used:
            used.add(label)
            yield label, query


def source_labels(sources: Iterable[SourceProgress]) -> Iterator[tuple[str, SourceProgress]]:
    """Yield each source of a query with its label: its description, with a number if another source has the same."""
    used: set[str] = set()
    for source in sources:
        label, number = source.description[:_LONGEST], 1
        while label in used:
            number += 1
            label = f"{source.description[:_LONGEST]} ({number})"
        used.add(label)
        yield label, source


def _name(query: QueryProgress) -> str:
    name = query.name or query.checkpoint_location.rstrip("/").rpartition("/")[2] or query.id
    return name[:_LONGEST]
