"""What the browser's tab says of the state: a word for the title, and an icon. Pure."""

from __future__ import annotations

import msgspec

from emberkeep.jobmanager.views.cluster import JobView
from emberkeep.jobs.model import JobStatus
from emberkeep.web.formats import capitalize_first
from emberkeep.web.health import Health

TONES = {
    JobStatus.CREATED: "waiting",
    JobStatus.INITIALIZING: "waiting",
    JobStatus.RUNNING: "running",
    JobStatus.RESTARTING: "waiting",
    JobStatus.FAILING: "failed",
    JobStatus.FAILED: "failed",
    JobStatus.CANCELLING: "cancelled",
    JobStatus.CANCELED: "cancelled",
    JobStatus.FINISHED: "finished",
}


class Tab(msgspec.Struct, frozen=True, kw_only=True):
    """``tone``: that of the icon; "" for the icon without a state. ``word``: for the title; "" if nothing is wrong."""

    tone: str = "running"
    word: str = ""

    @property
    def icon(self) -> str:
        """Name of the static file."""
        return f"icon-{self.tone}.svg" if self.tone else "icon.svg"


UNKNOWN = Tab(tone="")


def job_tab(job: JobView) -> Tab:
    """Return the tab of the pages of one job."""
    return Tab(tone="failed", word="ALARM") if job.alarms else Tab(tone=TONES[job.status], word=job.status.value)


def cluster_tab(found: Health) -> Tab:
    """Return the tab of a page that shows no single thing with a state: it says what is wrong in the cluster."""
    return Tab(tone=found.tone, word=capitalize_first(found.short) if found.short else "")
