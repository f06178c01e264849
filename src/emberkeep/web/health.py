"""The state of the cluster in one sentence: for the overview, its title and its icon. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from emberkeep.jobmanager.views.election import ElectionView
from emberkeep.jobs.model import JobStatus
from emberkeep.web.formats import capitalize_first, mebibytes, moment

JUST_FAILED_MS: Final = 30 * 60_000  # for so long after its end, a failed job is still part of the sentence
NEARLY_FULL_MB: Final = 5 * 1024  # free on a disk; the alert EmberkeepDiskNearlyFull has the same bound


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """``tone``: running, waiting or failed. ``short``: a few words for the title; "" if nothing is wrong."""

    tone: str
    text: str
    short: str = ""


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the sentence is made of.

    - ``jobs``: all of them, ended ones included. ``task_managers``: None if the reader may not see them.
    - ``problem``: what this leader cannot do now. ``storage``: why nothing is deleted in the storage. "" if neither.
    - ``election``: None without high availability, or if the reader may not see it. ``address``: the leader's.
    """

    now_ms: int
    jobs: Sequence[JobView]
    task_managers: Sequence[TaskManagerView] | None = None
    problem: str = ""
    storage: str = ""
    election: ElectionView | None = None
    address: str = ""


class _Problem(msgspec.Struct, frozen=True):
    tone: str
    short: str
    more: str = ""  # since when, and why


def health(facts: ClusterFacts) -> Health:
    """Return what needs a person, the most urgent first."""
    problems = sorted(_problems(facts), key=lambda each: each.tone != "failed")
    if not problems:
        running = sum(not job.status.is_globally_terminal for job in facts.jobs)
        what = f"{_jobs(running)} {'runs' if running == 1 else 'run'}" if running else "no job runs"
        return Health(tone="running", text=f"All is well: {what}.")
    text = capitalize_first("; ".join(each.short + each.more for each in problems))
    return Health(tone=problems[0].tone, text=f"{text}.", short=problems[0].short)


def _problems(facts: ClusterFacts) -> Iterator[_Problem]:
    if facts.problem:
        yield _Problem("failed", "the JobManager cannot do all its work", f": {facts.problem}")
    yield from _about_jobs(facts)
    if facts.task_managers is None:
        return
    yield from _about_nodes(facts.task_managers)
    if facts.storage:
        yield _Problem("waiting", "nothing is deleted in the storage", f": {facts.storage}")
    if facts.election is not None and _is_alone(facts.election, facts.address):
        away = ", ".join(each for each in facts.election.known if each != facts.address)
        yield _Problem(
            "waiting", "no JobManager stands by", f": {away} is away" if "," not in away else f": {away} are away"
        )


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
        yield _Problem("failed", _subject(alarmed, "has an alarm", "have an alarm"), why)
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
        why = f": {waiting[0].waiting}" if len(waiting) == 1 else ""
        yield _Problem("waiting", _subject(waiting, "waits", "wait"), why)


def _in_state(jobs: list[JobView], status: JobStatus, tone: str, one: str, many: str) -> Iterator[_Problem]:
    if not jobs:
        return
    first = min(jobs, key=lambda job: _entered(job, status))
    since = _entered(first, status)
    at = "at" if status.is_globally_terminal else "since"
    if len(jobs) == 1:
        why = f": {first.root_cause}" if first.root_cause else ""
        yield _Problem(tone, _subject(jobs, one, many), f" {at} {moment(since)}{why}")
    else:
        yield _Problem(tone, _subject(jobs, one, many), _first([first], since, at))


def _about_nodes(task_managers: Sequence[TaskManagerView]) -> Iterator[_Problem]:
    if not task_managers:
        yield _Problem("failed", "no task manager is registered")
    full = {
        view.info.node_id: view.report.disk_free_mb
        for view in task_managers
        if view.report.disk_total_mb and view.report.disk_free_mb < NEARLY_FULL_MB and not view.away
    }
    for node, free in list(full.items())[:1]:
        short = (
            f"the disk of node {node} is nearly full"
            if len(full) == 1
            else f"the disks of {len(full)} nodes are nearly full"
        )
        which = "" if len(full) == 1 else f" on {node}"
        yield _Problem("failed", short, f": {mebibytes(free)} are free{which}")
    away = sorted((view for view in task_managers if view.away), key=lambda view: view.last_heartbeat_ms)
    if away:
        since = moment(away[0].last_heartbeat_ms)
        if len(away) == 1:
            yield _Problem("waiting", f"task manager {away[0].info.id} lost contact", f" at {since}")
        else:
            yield _Problem(
                "waiting", f"{len(away)} task managers lost contact", f", the first, {away[0].info.id}, at {since}"
            )


def _is_alone(election: ElectionView, address: str) -> bool:
    """True if other JobManagers are known, and none of them stands by."""
    return any(each != address for each in election.known) and all(each == address for each in election.queue)


def _entered(job: JobView, status: JobStatus) -> int:
    return job.status_times_ms.get(status, job.ended_ms or job.submitted_ms)


def _subject(jobs: Sequence[JobView], one: str, many: str) -> str:
    return f"job {jobs[0].name or jobs[0].job_id[:8]} {one}" if len(jobs) == 1 else f"{_jobs(len(jobs))} {many}"


def _first(jobs: Sequence[JobView], since_ms: int, at: str = "since") -> str:
    return f", the first, {jobs[0].name or jobs[0].job_id[:8]}, {at} {moment(since_ms)}"


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"
