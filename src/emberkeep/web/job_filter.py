"""Which jobs the list of jobs shows, and the links that change that: all of it is in the page's address."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from emberkeep.base.errors import InvalidInput
from emberkeep.jobmanager.views.briefs import JobBrief
from emberkeep.jobs.model import JobStatus
from emberkeep.web.paging import page_address


@dataclass(frozen=True)
class JobFilter:
    """Which jobs are listed: "" and None select all.

    ``name``: text that the job's name contains, in any case, or with which its id begins.
    """

    status: JobStatus | None = None
    owner: str = ""
    name: str = ""

    def matching(self, jobs: Iterable[JobBrief]) -> list[JobBrief]:
        """Return the jobs that match, whatever their status."""
        text = self.name.strip().lower()
        return [
            job
            for job in jobs
            if self.owner in ("", job.owner) and (text in job.name.lower() or job.job_id.startswith(text))
        ]

    def with_status(self, status: JobStatus | None) -> JobFilter:
        return replace(self, status=status)

    def with_owner(self, owner: str) -> JobFilter:
        return replace(self, owner=owner)

    def path(self, page: int = 1) -> str:
        """Return the address of a page of the list."""
        state = self.status.value if self.status else ""
        return page_address("/jobs", page, state=state, owner=self.owner, name=self.name)


def parse_status(text: str) -> JobStatus | None:
    """Return the state that a text names; None for "". Raises InvalidInput."""
    if not text:
        return None
    try:
        return JobStatus(text)
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not the state of a job", field="state") from None
