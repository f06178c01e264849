"""Options of the jobs that pipelines and Spark Connect servers run as."""

from __future__ import annotations

from dataclasses import dataclass

from cyclopts import Parameter

from emberkeep.cli.parameters import JobNamespace, Secrets


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DoorOptions:
    """Options of the job itself."""

    namespace: JobNamespace = ""
    secret: Secrets = ()


DEFAULT_DOOR = DoorOptions()
