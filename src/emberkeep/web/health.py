"""The state of the cluster in one sentence: for the overview, its title and its icon. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from emberkeep.jobmanager.views.cluster import JobView, TaskManagerView
from emberkeep.web.formats import capitalize_first


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """``tone``: running, waiting or failed. ``short``: a few words for the title; "" if nothing is wrong."""

    tone: str
    text: str
    short: str = ""


def health(running: Sequence[JobView], task_managers: Iterable[TaskManagerView] | None) -> Health:
    """Return what needs a person first. ``running``: jobs that have not ended. ``task_managers``: None if hidden."""
    alarmed = sum(bool(job.alarms) for job in running)
    waiting = sum(bool(job.waiting) and not job.alarms for job in running)
    registered = None if task_managers is None else list(task_managers)
    away = sum(view.away for view in registered or ())
    problems = [
        text
        for count, text in (
            (alarmed, f"{_jobs(alarmed)} {'has' if alarmed == 1 else 'have'} an alarm"),
            (registered is not None and not registered, "no task manager is registered"),
            (away, f"{away} task manager{'' if away == 1 else 's'} lost contact"),
            (waiting, f"{_jobs(waiting)} {'waits' if waiting == 1 else 'wait'}"),
        )
        if count
    ]
    if not problems:
        what = f"{_jobs(len(running))} {'runs' if len(running) == 1 else 'run'}" if running else "no job runs"
        return Health(tone="running", text=f"All is well: {what}.")
    text = capitalize_first(", ".join(problems))
    return Health(tone="failed" if alarmed else "waiting", text=f"{text}.", short=problems[0])


def _jobs(count: int) -> str:
    return f"{count} job{'' if count == 1 else 's'}"
