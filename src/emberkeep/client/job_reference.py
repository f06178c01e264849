"""Find a job by what users call it: its id, a prefix of the id, or its name."""

from __future__ import annotations

import re

from emberkeep.base.errors import Absent, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.client.rest_client import RestClient
from emberkeep.protocol.rest_jobs import JobDetails

_FULL_ID = re.compile(r"[0-9a-f]{32}")
_ID_PREFIX = re.compile(r"[0-9a-f]{1,32}")
_SHOWN = 8


async def resolve_job(client: RestClient, reference: str) -> JobId:
    """Return the id of the job that ``reference`` names. Raises Absent (none), InvalidInput (several)."""
    if _FULL_ID.fullmatch(reference):
        return JobId(reference)
    return choose_job(await client.jobs(), reference)


def choose_job(jobs: list[JobDetails], reference: str) -> JobId:
    """Return the id of the job with the name ``reference``, else of the job whose id begins with it.

    If several jobs have the name and exactly one of them is unfinished, return that job. Raises Absent, and
    InvalidInput that lists the candidates.
    """
    matches = [job for job in jobs if job.name == reference]
    unfinished = [job for job in matches if not job.state.is_globally_terminal]
    if len(unfinished) == 1:
        matches = unfinished
    if not matches and _ID_PREFIX.fullmatch(reference):
        matches = [job for job in jobs if job.jid.startswith(reference)]
    if not matches:
        raise Absent(f"there is no job {reference!r}", hint="`emberkeep list` shows all jobs")
    if len(matches) > 1:
        shown = ", ".join(f"{job.jid[:12]} ({job.state.value})" for job in matches[:_SHOWN])
        more = f" and {len(matches) - _SHOWN} more" if len(matches) > _SHOWN else ""
        raise InvalidInput(
            f"{reference!r} matches {len(matches)} jobs: {shown}{more}", hint="give more of the job's id"
        )
    return matches[0].jid
