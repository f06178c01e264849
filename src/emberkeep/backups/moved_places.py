"""The locations in a lost cluster's records as the new cluster reaches them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from emberkeep.base.configuration.options.savepoints import SAVEPOINT_DIRECTORY
from emberkeep.base.configuration.places import scheme_of
from emberkeep.jobs.checkpoints import JobPointers, SavepointPointer
from emberkeep.jobs.model import JobGraph, JobResult
from emberkeep.jobs.upgrades.model import Upgrade
from emberkeep.lifecycle.model import ProcedureRequest

_FORMS = ("", "file:", "file://")  # in which a path is written
_SAVEPOINT_OPTIONS = (SAVEPOINT_DIRECTORY.key, *SAVEPOINT_DIRECTORY.deprecated_keys)


@dataclass(frozen=True)
class MovedPlaces:
    """Where the directories of the lost cluster are now.

    ``places``: pairs of a directory of the lost cluster and the same directory of the new one; the first that contains
    a location counts, even if it has not moved.
    """

    places: Sequence[tuple[str, str]] = ()

    def location(self, location: str) -> str:
        """Return where a directory or a file is now. What is in no known directory stays where it is."""
        for old, new in self.places:
            for form in _FORMS:
                place = f"{form}{old}"
                if location == place or location.startswith(f"{place}/"):
                    return f"{'' if scheme_of(new) else form}{new}{location.removeprefix(place)}"
        return location

    def pointers(self, pointers: JobPointers) -> JobPointers:
        queries = (msgspec.structs.replace(each, location=self.location(each.location)) for each in pointers.queries)
        return msgspec.structs.replace(
            pointers, queries=tuple(queries), savepoints=self._savepoints(pointers.savepoints)
        )

    def _savepoints(self, savepoints: Iterable[SavepointPointer]) -> tuple[SavepointPointer, ...]:
        return tuple(msgspec.structs.replace(each, path=self.location(each.path)) for each in savepoints)

    def result(self, result: JobResult) -> JobResult:
        return msgspec.structs.replace(
            result, savepoint=self.location(result.savepoint), savepoints=self._savepoints(result.savepoints)
        )

    def request(self, request: ProcedureRequest) -> ProcedureRequest:
        return msgspec.structs.replace(request, target_directory=self.location(request.target_directory))

    def graph(self, graph: JobGraph) -> JobGraph:
        options = {
            key: self.location(value) if key in _SAVEPOINT_OPTIONS else value for key, value in graph.options.items()
        }
        return msgspec.structs.replace(graph, savepoint=self.location(graph.savepoint), options=options)

    def upgrade(self, upgrade: Upgrade) -> Upgrade:
        return msgspec.structs.replace(
            upgrade,
            target_directory=self.location(upgrade.target_directory),
            savepoint=self.location(upgrade.savepoint),
            bases={self.location(each): batch for each, batch in upgrade.bases.items()},
            new=None if upgrade.new is None else self.graph(upgrade.new),
            back=None if upgrade.back is None else self.graph(upgrade.back),
        )
