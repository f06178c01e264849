"""Check a job's graph before the job is accepted, and derive from it what the job needs. Pure."""

from __future__ import annotations

from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import InvalidInput
from emberkeep.base.ids import JobId, parse_job_id
from emberkeep.blobs.model import NO_JOB, BlobContent, BlobKey, permanent
from emberkeep.jobs.model import EntryPoint, EntryPointKind, JobGraph, JobResources, follows_load
from emberkeep.slots.custom.amounts import amounts
from emberkeep.slots.ledger import DriverNeed
from emberkeep.slots.model import ResourceProfile


def driver_need(graph: JobGraph, shunned: frozenset[str] = frozenset()) -> DriverNeed:
    """Return what the job's driver needs on a task manager. ``shunned``: nodes on which it could not be started."""
    resources = graph.resources
    return DriverNeed(
        memory_mb=resources.driver_memory_mb + resources.driver_overhead_mb,
        python=graph.python,
        shunned=shunned,
        custom=amounts(resources.driver_resources),
    )


def executor_profile(graph: JobGraph) -> ResourceProfile | None:
    """Return the size of one executor that the job asks for, at its start or later; None if it asks for none."""
    resources = graph.resources
    if resources.executors == 0 and not follows_load(graph.spark_conf):
        return None
    return ResourceProfile(
        cores=resources.executor_cores,
        memory_mb=resources.executor_memory_mb + resources.executor_overhead_mb,
        custom=amounts(resources.executor_resources),
    )


def artefact_contents(graph: JobGraph) -> tuple[BlobContent, ...]:
    """Return what must be uploaded before the job is submitted."""
    return tuple(BlobContent(sha256=artefact.sha256, size=artefact.size) for artefact in graph.artefacts)


def artefact_keys(graph: JobGraph) -> tuple[BlobKey, ...]:
    """Return the BLOBs that the job needs from its submission to its end."""
    return tuple(permanent(artefact.sha256) for artefact in graph.artefacts)


def job_configuration(cluster: Configuration, graph: JobGraph) -> Configuration:
    """Return the cluster's configuration, overridden by the job's options. Raises InvalidInput."""
    return cluster.with_texts(graph.options, _origin(graph))


def usable_configuration(cluster: Configuration, graph: JobGraph) -> tuple[Configuration, str]:
    """Return the configuration of a job that another release may have accepted, and the release that the job needs.

    Options unknown to this release are left out. The second value names the release that the job needs; "" if this one
    suffices.
    """
    configuration, unknown = cluster, []
    for key, text in graph.options.items():
        try:
            configuration = configuration.with_recorded({key: text}, _origin(graph))
        except InvalidInput as error:
            unknown.append(error.message)
    return configuration, f"a release that takes its options: {'; '.join(unknown)}" if unknown else ""


def _origin(graph: JobGraph) -> str:
    return f"option of job {graph.name!r}"


def check_graph(graph: JobGraph) -> None:
    """Raise InvalidInput, naming the field, if the graph is not valid."""
    if parse_job_id(graph.job_id) == NO_JOB:
        raise InvalidInput(
            "this id is reserved for BLOBs that belong to no job", field="jobid", hint="choose another one"
        )
    for index, artefact in enumerate(graph.artefacts):
        try:
            permanent(artefact.sha256)
        except ValueError as error:
            raise InvalidInput(str(error), field=f"artefacts[{index}].sha256") from None
    resources = graph.resources
    for field, value, least in (
        ("driver_memory_mb", resources.driver_memory_mb, 1),
        ("driver_overhead_mb", resources.driver_overhead_mb, 0),
        ("executors", resources.executors, 0),
        ("executor_cores", resources.executor_cores, 1),
        ("executor_memory_mb", resources.executor_memory_mb, 1),
        ("executor_overhead_mb", resources.executor_overhead_mb, 0),
    ):
        if value < least:
            raise InvalidInput(f"resources.{field} is {value}: at least {least} is needed", field=f"resources.{field}")
    for field, by_name in (
        ("executor_resources", resources.executor_resources),
        ("driver_resources", resources.driver_resources),
    ):
        for name, amount in by_name.items():
            if amount < 1:
                raise InvalidInput(
                    f"resources.{field}.{name} is {amount}: at least 1 is needed", field=f"resources.{field}"
                )


def unreadable_graph(job_id: JobId, idempotency_key: str, now_ms: int) -> JobGraph:
    """Return a placeholder for a graph that cannot be read, so that its job can be shown."""
    return JobGraph(
        job_id=job_id,
        name=job_id,
        entry_point=EntryPoint(kind=EntryPointKind.SCRIPT, name=""),
        arguments=(),
        artefacts=(),
        spark_conf={},
        options={},
        working_directory="",
        resources=JobResources(
            driver_memory_mb=0,
            driver_overhead_mb=0,
            executors=0,
            executor_cores=0,
            executor_memory_mb=0,
            executor_overhead_mb=0,
        ),
        python="",
        submitted_ms=now_ms,
        idempotency_key=idempotency_key,
    )
