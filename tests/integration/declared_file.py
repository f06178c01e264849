"""A stream, the file that declares it, and the commands that take the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from emberkeep.base.ids import JobId
from tests.integration.clusters import Cluster
from tests.integration.commands import QUICK_JVMS, Ended
from tests.integration.conditions import until
from tests.integration.streams import Stream

_CONF: dict[str, Any] = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.instances": 1,
    **QUICK_JVMS,
}


class DeclaredFile:
    """``declare`` writes it. The commands run in another directory than the file's."""

    def __init__(self, cluster: Cluster, directory: Path, stream: Stream | None = None, name: str = "") -> None:
        """``stream``: of a file in a directory that exists already."""
        self._cluster = cluster
        if stream is None:
            directory.mkdir()
        self.stream = stream or Stream(directory / "output")
        self.path = directory / (name or "counts.yaml")
        self.script = directory / "counts.py"

    def declare(self, script: str, **more: Any) -> None:
        """Write the script and the file. ``more``: further fields, and further ``options``."""
        self.script.write_text(script)
        savepoints = {"execution.checkpointing.savepoint-dir": str(self.path.parent / "savepoints")}
        declared = {
            "version": 1,
            "name": "counts",
            "script": self.script.name,
            "arguments": [str(self.stream.place)],
            "conf": _CONF,
            **more,
            "options": savepoints | more.get("options", {}),
        }
        self.path.write_text(yaml.safe_dump(declared))

    def printed(self) -> DeclaredFile:
        """Return the file that ``emberkeep get`` prints, which is written beside this one."""
        other = DeclaredFile(self._cluster, self.path.parent, self.stream, "printed.yaml")
        other.path.write_text(self._cluster.shell.done("get", "counts", "-o", "yaml").out)
        return other

    # --- commands -----------------------------------------------------------------------------------------------------

    def apply(self, *options: str) -> JobId:
        """Apply the file, and return the id that is printed."""
        return JobId(self._cluster.shell.done("apply", str(self.path), *options).out.strip())

    def applied(self) -> tuple[int, list[str]]:
        """Apply the file. Return the exit code, and what the command said."""
        return _answer(self._cluster.shell.run("apply", str(self.path)))

    def diff(self) -> tuple[int, list[str]]:
        """Return the exit code, and the plan with what differs."""
        return _answer(self._cluster.shell.run("diff", str(self.path)))

    # --- what has become of it ----------------------------------------------------------------------------------------

    def jobs(self) -> set[JobId]:
        """All jobs of the cluster."""
        return {job.jid for job in self._cluster.ask(lambda client: client.jobs())}

    def wait_for_batches(self, job_id: JobId, more: int = 3) -> None:
        """Return once the output has so many more batches."""
        wanted = self.stream.batches() + more
        until(lambda: self.stream.batches() >= wanted, lambda: self._cluster.story(job_id))


def _answer(ended: Ended) -> tuple[int, list[str]]:
    assert ended.code in (0, 1), ended
    return ended.code, [line.removeprefix("emberkeep: ").strip() for line in ended.err.splitlines()]
