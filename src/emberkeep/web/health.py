"""The state of the cluster in one sentence: for the overview, its title and its icon. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from emberkeep.jobmanager.views.election import ElectionView
from emberkeep.jobs.model import JobStatus
from emberkeep.usage.history import NEARLY_FULL_MB
from emberkeep.web.formats import capitalize_first, mebibytes, moment

JUST_FAILED_MS: Final = 30 * 60_000  # for so long after its end, a failed job is still part of the sentence


class Link(msgspec.Struct, frozen=True):
    """A page that shows more."""

    text: str
    path: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """``tone``: running, waiting or failed. ``short``: a few words for the title; "" if nothing is wrong.

    ``links``: where a person looks next, at most one for each thing that is wrong.
    """

    tone: str
    text: str
    short: str = ""
    links: tuple[Link, ...] = ()


class ProblemTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Since when there are problems, as far as the leader knows, in Unix milliseconds; 0 for what is not wrong.

    - ``problem``: the leader cannot do all its work. ``storage``: nothing is deleted in the storage.
    - ``storage_low``: the storage is nearly full; ``storage_free``: bytes that it has left.
    - ``empty``: no task manager is registered.
    """

    problem: int = 0
    storage: int = 0
    storage_low: int = 0
    storage_free: int = 0
    empty: int = 0


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the sentence is made of.

    - ``jobs``: all of them, ended ones included. ``task_managers``: None if the reader may not see them.
    - ``problem``: what this leader cannot do now. ``storage``: why nothing is deleted in the storage. "" if neither.
    - ``election``: None without high availability, or if the reader may not see it. ``address``: the leader's.
    - ``times``: since when there are such problems.
    """

    now_ms: int
    jobs: Sequence[JobBrief]
    task_managers: Sequence[TaskManagerView] | None = None
    problem: str = ""
    storage: str = ""
    election: ElectionView | None = None
    address: str = ""
    times: ProblemTimes = ProblemTimes()


class _Problem(msgspec.Struct, frozen=True):
    tone: str
    short: str
    more: str = ""  # since when, and why
    link: Link | None = None


def health(facts: ClusterFacts) -> Health:
    """Return what needs a person, the most urgent first."""
    problems = sorted(_problems(facts), key=lambda each: each.tone != "failed")
    if not problems:
        running = sum(not job.status.is_globally_terminal for job in facts.jobs)
        what = f"{_jobs(running)} {'runs' if running == 1 else 'run'}" if running else "no job runs"
        return Health(tone="running", text=f"All is well: {what}.")
    text = capitalize_first("; ".join((each.short + each.more).rstrip(".") for each in problems))
    links = tuple(each.link for each in problems if each.link is not None)
    return Health(tone=problems[0].tone, text=f"{text}.", short=problems[0].short, links=links)


def _problems(facts: ClusterFacts) -> Iterator[_Problem]:
    if facts.problem:
        why = f"{_since(facts.times.problem)}: {facts.problem}"
        yield _Problem("failed", "the JobManager cannot do all its work", why)
    yield from _about_jobs(facts)
    if facts.task_managers is None:
        return
    yield from _about_nodes(facts.task_managers, facts.times.empty)
    if facts.times.storage_low:
        free = f": {mebibytes(facts.times.storage_free // 1024**2)} are free"
        yield _Problem("failed", "the shared storage is nearly full", f"{_since(facts.times.storage_low)}{free}")
    if facts.storage:
        yield _Problem(
            "waiting", "nothing is deleted in the storage", f"{_since(facts.times.storage)}: {facts.storage}"
        )
    if facts.election is not None and _is_alone(facts.election, facts.address):
        away = [each for each in facts.election.known if each != facts.address]
        why = f"{', '.join(away)} {'is' if len(away) == 1 else 'are'} away"
        since = _since(facts.election.queue_changed_ms)
        yield _Problem("waiting", "no JobManager stands by", f"{since}: {why}", Link("Leadership", "/leadership"))


def _about_jobs(facts: ClusterFacts) -> Iterator[_Problem]:
    running = [job for job in facts.jobs if not job.status.is_globally_terminal]
    alarmed = sorted((job for job in running if job.alarms), key=lambda job: job.alarms[0].since_ms)
    if alarmed:
        first = alarmed[0].alarms[0]
        why = (
            f" (since {moment(first.since_ms)}): {first.message}"
            if len(alarmed) == 1
            else _first(alarmed, first.since_ms)
        )
        yield _Problem("failed", _subject(alarmed, "has an alarm", "have an alarm"), why, _page_of(alarmed[0]))
    failed = [
        job
        for job in facts.jobs
        if job.status is JobStatus.FAILED and facts.now_ms - (job.ended_ms or 0) < JUST_FAILED_MS
    ]
    yield from _in_state(failed, JobStatus.FAILED, "failed", "has failed", "have failed")
    restarting = [job for job in running if job.status is JobStatus.RESTARTING and not job.alarms]
    yield from _in_state(restarting, JobStatus.RESTARTING, "waiting", "has been restarting", "have been restarting")
    waiting = [job for job in running if job.waiting and not job.alarms and job not in restarting]
    if waiting:
        longest = min(waiting, key=lambda job: waits_since(job) or facts.now_ms)
        which = "" if len(waiting) == 1 else f", the first, {_name(longest)},"
        why = f"{which}{_since(waits_since(longest))}: {longest.waiting}"
        yield _Problem("waiting", _subject(waiting, "waits", "wait"), why, _page_of(longest))


def _in_state(jobs: list[JobBrief], status: JobStatus, tone: str, one: str, many: str) -> Iterator[_Problem]:
    if not jobs:
        return
    first = min(jobs, key=lambda job: job.entered_ms)
    since = first.entered_ms
    at = "at" if status.is_globally_terminal else "since"
    if len(jobs) == 1:
        why = f": {first.failure}" if first.failure else ""
        yield _Problem(tone, _subject(jobs, one, many), f" {at} {moment(since)}{why}", _page_of(first))
    else:
        listed = Link(f"{status.value} jobs", f"/jobs?state={status.value}")
        yield _Problem(tone, _subject(jobs, one, many), _first([first], since, at), listed)


def _about_nodes(task_managers: Sequence[TaskManagerView], empty_since_ms: int) -> Iterator[_Problem]:
    if not task_managers:
        yield _Problem("failed", "no task manager is registered", _since(empty_since_ms))
    full = {view.info.node_id: view for view in task_managers if is_disk_low(view)}
    if full:
        first = min(full.values(), key=lambda view: view.disk_low_since_ms or view.last_heartbeat_ms)
        node, free = first.info.node_id, mebibytes(first.report.disk_free_mb)
        if len(full) == 1:
            short, why = f"the disk of node {node} is {_how_full(full)}", f"{disk_low_since(first)}: {free} are free"
            yield _Problem("failed", short, why, _page_of_node(node))
        else:
            short = f"the disks of {len(full)} nodes are {_how_full(full)}"
            why = f", the first, on {node},{disk_low_since(first)}: {free} are free"
            yield _Problem("failed", short, why, _page_of_node(node))
    away = sorted((view for view in task_managers if view.away), key=lambda view: view.last_heartbeat_ms)
    if away:
        since = moment(away[0].last_heartbeat_ms)
        if len(away) == 1:
            name = away[0].info.id
            here = Link(name, f"/taskmanagers/{quote(name, safe='')}")
            yield _Problem("waiting", f"task manager {name} lost contact", f" at {since}", here)
        else:
            short, why = f"{len(away)} task managers lost contact", f", the first, {away[0].info.id}, at {since}"
            yield _Problem("waiting", short, why, Link("Silent task managers", "/taskmanagers?state=away"))


def _how_full(full: Mapping[str, TaskManagerView]) -> str:
    return "full" if all(view.disk_full for view in full.values()) else "nearly full"


def node_health(task_managers: Sequence[TaskManagerView]) -> tuple[str, ...]:
    """Return sentences about the task managers of one node: what is wrong, since when, and why."""
    found = _about_nodes(task_managers, 0)
    return tuple(f"{capitalize_first(each.short)}{each.more}." for each in found)


def is_disk_low(view: TaskManagerView) -> bool:
    """True if the task manager reports that its disk is nearly full."""
    return bool(view.report.disk_total_mb) and view.report.disk_free_mb < NEARLY_FULL_MB and not view.away


def disk_low_since(view: TaskManagerView) -> str:
    """Return since when the disk is nearly full. Of a history that begins with it, the begin may be earlier."""
    since = _since(view.disk_low_since_ms)
    return since.replace("since", "since at least") if view.disk_low_since_ms == view.usage_since_ms else since


def waits_since(job: JobView | JobBrief) -> int:
    """Return since when a job waits, in Unix milliseconds; 0 if that is unknown."""
    return job.waiting_since_ms if job.status is JobStatus.RUNNING else job.entered_ms


def _since(time_ms: int) -> str:
    """Return a piece of a sentence; "" if the time is unknown."""
    return f" since {moment(time_ms)}" if time_ms else ""


def _is_alone(election: ElectionView, address: str) -> bool:
    """True if other JobManagers are known, and none of them stands by."""
    return any(each != address for each in election.known) and all(each == address for each in election.queue)


def _subject(jobs: Sequence[JobBrief], one: str, many: str) -> str:
    return f"job {_name(jobs[0])} {one}" if len(jobs) == 1 else f"{_jobs(len(jobs))} {many}"


def _first(jobs: Sequence[JobBrief], since_ms: int, at: str = "since") -> str:
    return f", the first, {_name(jobs[0])}, {at} {moment(since_ms)}"


def _name(job: JobBrief) -> str:
    return job.name or job.job_id[:8]


def _page_of(job: JobBrief) -> Link:
    return Link(_name(job), f"/jobs/{job.job_id}")


def _page_of_node(node: str) -> Link:
    return Link(node, f"/nodes/{quote(node, safe='')}")


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"
