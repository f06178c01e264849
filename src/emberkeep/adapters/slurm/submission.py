"""The arguments of ``sbatch`` for one task manager. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """What every job of the cluster asks Slurm for.

    Texts that are empty leave the choice to Slurm. ``signal_seconds``: how long before the end of its time the batch
    script gets SIGUSR1. ``output``: the file for its output, in which Slurm replaces ``%x`` and ``%j``. ``extra``:
    further arguments, which win over the ones before them.
    """

    cpus: int
    memory_mb: int
    signal_seconds: int
    output: str
    directory: str
    time_limit: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    gres: str = ""
    constraint: str = ""
    extra: tuple[str, ...] = ()


def sbatch_arguments(request: Request, name: str, excluded: Iterable[str]) -> list[str]:
    """Return the arguments that submit the job ``name``. ``sbatch`` reads the batch script from its standard input.

    ``--dependency=singleton`` keeps a second job of that name waiting until the first one has ended. A job that Slurm
    would requeue waits for two minutes, so ``--no-requeue``: the JobManager submits a new one at once.
    """
    chosen = {
        "--time": request.time_limit,
        "--partition": request.partition,
        "--account": request.account,
        "--qos": request.qos,
        "--gres": request.gres,
        "--constraint": request.constraint,
        "--exclude": ",".join(sorted(excluded)),
    }
    return [
        "--parsable",
        f"--job-name={name}",
        "--dependency=singleton",
        "--no-requeue",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={request.cpus}",
        f"--mem={request.memory_mb}M",
        f"--signal=B:USR1@{request.signal_seconds}",
        f"--output={request.output}",
        "--open-mode=append",
        f"--chdir={request.directory}",
        *(f"{option}={value}" for option, value in chosen.items() if value),
        *request.extra,
    ]


def batch_script(command: Sequence[str]) -> str:
    """Return the batch script: the shell becomes ``command``, so that this process gets the job's signals."""
    return f"#!/bin/sh\nexec {shlex.join(command)}\n"


def gres_amounts(gres: str) -> dict[str, int]:
    """Return the amounts in a list as for ``sbatch --gres``, such as "gpu:a100:2,shard"; the types are left out."""
    found: dict[str, int] = {}
    for each in gres.split(","):
        name, *more = each.strip().removeprefix("gres/").replace("=", ":").split(":")
        count = more[-1] if more and more[-1].isdecimal() else "1"
        if name and name != "none":
            found[name] = found.get(name, 0) + int(count)
    return found


def submitted_id(output: str) -> int | None:
    """Return the job id in the output of ``sbatch --parsable``, which may append ";cluster"; None if there is none."""
    number = output.strip().splitlines()[-1].partition(";")[0] if output.strip() else ""
    return int(number) if number.isdecimal() else None
