"""Clients that submit, cancel, block, unblock and list at the same time."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from campaign.linearizability import blocklist, job_store
from campaign.linearizability.history import Operation
from campaign.processes.calls import SECONDS, Calls, NotDone, Reply, Unknown
from campaign.processes.recording import BLOCKLIST, JOBS, Recorder, Sent, Unexpected
from emberkeep.blocklist.model import PERMANENT
from emberkeep.client.submission.preparation import PreparedJob

HURRIED_SECONDS = (0.001, 0.05)  # after which a client abandons its request; most replies come within them
_THINKS = 0.25  # seconds between two requests, at most twice


@dataclass
class SubmittedJob:
    """A job as its clients know it. ``candidates``: the ids that were proposed with its key.

    ``place``: the directory with its deeds. ``entries``: how many it commits. ``is_parked``: it fits on no node, so it
    waits until it is cancelled. ``is_stored``: its entries go through state gateways. ``is_kept``: no
    client cancels it.
    """

    key: str
    prepared: PreparedJob
    place: Path
    entries: int
    is_parked: bool = False
    is_stored: bool = False
    is_kept: bool = False
    candidates: list[str] = field(default_factory=list)


@dataclass
class ClientsWorld:
    """What all clients of a history share. ``make_job``: returns a job that is not submitted yet; None for no more.

    ``places``: what is blocked and unblocked, as in the paths of the REST API.
    """

    calls: Calls
    urls: list[str]
    places: list[tuple[str, str]]
    recorder: Recorder
    make_job: Callable[[], SubmittedJob | None]
    jobs: list[SubmittedJob] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)


class Client:
    """One client. ``chance`` decides what it does.

    ``hurry`` is set when it is to abandon its next request, and called once it has.
    """

    def __init__(self, name: str, world: ClientsWorld, chance: random.Random) -> None:
        self.name = name
        self.hurry: Callable[[], None] | None = None
        self._world = world
        self._chance = chance

    async def run(self, until: float) -> None:
        """Do one thing after the other, until a time by the clock."""
        deeds: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (1.5, self._submit_new),
            (1.0, self._submit_again),
            (0.5, self._cancel),
            (2.0, self._read_job),
            (1.5, self.list_jobs),
            (2.0, self._block),
            (1.5, self._unblock),
            (2.5, self.list_blocklist),
        ]
        while time.monotonic() < until:
            (deed,) = self._chance.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])
            await deed()
            await asyncio.sleep(self._chance.uniform(0.0, 2 * _THINKS))

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def _submit_new(self) -> None:
        job = self._world.make_job()
        if job is not None:
            self._world.jobs.append(job)
            await self.submit(job)

    async def _submit_again(self) -> None:
        if self._world.jobs:
            await self.submit(self._chance.choice(self._world.jobs))

    async def submit(self, job: SubmittedJob) -> None:
        """Submit a job: with the id that was proposed first, or with another one."""
        if not job.candidates or self._chance.random() < 0.3:
            job.candidates.append(f"{self._chance.getrandbits(128):032x}")
        await self.submit_as(job, self._chance.choice(job.candidates))

    async def submit_as(self, job: SubmittedJob, job_id: str, seconds: float = SECONDS) -> bool:
        """Submit a job with an id. Return True if that was acknowledged. ``seconds``: for each file."""
        base = self._base()
        if not await self._upload(base, job, job_id, seconds):
            return False
        body = msgspec.structs.replace(job.prepared.submission, jobid=job_id, idempotency_key=job.key)

        def result(reply: Reply) -> Any:
            if reply.status == 202:
                return {"jobid": reply.body["jobid"], "created": reply.body["created"]}
            if reply.status == 424:  # a file went with a leader
                raise NotDone(str(reply.body))
            raise Unexpected

        sent = Sent("POST", base, "/jobs", body)
        return await self._do(JOBS, job.key, "submit", {"jobid": job_id}, sent, result)

    async def _upload(self, base: str, job: SubmittedJob, job_id: str, seconds: float) -> bool:
        """Upload the files of a job that are missing. Return False if that fails, which has no effect on histories."""
        artefacts = job.prepared.submission.artefacts
        blobs = [{"sha256": each.sha256, "size": each.size} for each in artefacts]
        try:
            opened = await self._world.calls.call("POST", base, f"/jobs/{job_id}/blobs", {"blobs": blobs})
            for sha256 in opened.body.get("missing", ()) if opened.status < 300 else ():
                content = await asyncio.to_thread(job.prepared.contents[sha256].read_bytes)
                path = f"/jobs/{job_id}/blobs/p-{sha256}"
                await self._world.calls.upload(base, path, content, seconds=seconds)
        except (NotDone, Unknown):
            self._world.recorder.counts["upload failed"] += 1
            return False
        return True

    async def _cancel(self) -> None:
        job, job_id = self._any_job()
        if job is not None and not job.is_kept:
            await self.cancel(job, job_id)

    async def cancel(self, job: SubmittedJob, job_id: str) -> bool:
        """Cancel a job. Return True if there was a reply that says what became of it."""

        def result(reply: Reply) -> Any:
            found = {200: None, 202: None, 404: job_store.ABSENT, 409: job_store.ENDED}
            if reply.status not in found:
                raise Unexpected
            return found[reply.status]

        sent = Sent("PATCH", self._base(), f"/jobs/{job_id}?mode=cancel")
        return await self._do(JOBS, job.key, "cancel", {"jobid": job_id}, sent, result)

    async def _read_job(self) -> None:
        job, job_id = self._any_job()
        if job is None:
            return

        def result(reply: Reply) -> Any:
            if reply.status == 404:
                return job_store.ABSENT
            if reply.status == 200:
                return _status(reply.body)
            raise Unexpected

        sent = Sent("GET", self._base(), f"/jobs/{job_id}")
        await self._do(JOBS, job.key, "read", {"jobid": job_id}, sent, result)

    async def list_jobs(self, *, parked: bool = False) -> None:
        """List all jobs. Record what is shown of those that run; with ``parked``, also of those that wait."""
        jobs = [job for job in self._world.jobs if parked or not job.is_parked]
        candidates = [(job.key, job_id) for job in jobs for job_id in job.candidates]
        seen = await self._world.recorder.read(self._world.calls, self._sent("/jobs/overview"))
        if seen is None:
            return
        invoked, returned, body = seen
        shown = {each["jid"]: _status(each) for each in body["jobs"]}
        self._world.recorder.histories[JOBS].extend(
            Operation(
                client=self.name,
                key=key,
                kind="read",
                arguments={"jobid": job_id},
                invoked=invoked,
                returned=returned,
                result=shown.get(job_id, job_store.ABSENT),
            )
            for key, job_id in candidates
        )

    def _any_job(self) -> tuple[SubmittedJob, str] | tuple[None, str]:
        if not self._world.jobs:
            return None, ""
        job = self._chance.choice(self._world.jobs)
        return (job, self._chance.choice(job.candidates)) if job.candidates else (None, "")

    # --- the blocklist ------------------------------------------------------------------------------------------------

    async def _block(self) -> None:
        kind, name = self._chance.choice(self._world.places)
        number = next(self._world.numbers)
        evacuates = self._chance.random() < 0.3
        seconds = self._chance.choice((None, 0.5, 2.0, 5.0))
        given = {
            "action": "MARK_BLOCKED_AND_EVACUATE_TASKS" if evacuates else "MARK_BLOCKED",
            "end": PERMANENT if seconds is None else int((time.time() + seconds) * 1000),
            "cause": f"cause {number}",
            "merge": self._chance.random() < 0.5,
        }
        body = {"action": given["action"], "cause": given["cause"], "allowMerge": given["merge"]}
        if seconds is not None:
            body["endTimestamp"] = given["end"]

        def result(reply: Reply) -> Any:
            if reply.status in (201, 202):
                return _entry(reply.body)
            if reply.status == 409:
                return blocklist.REFUSED
            if reply.status == 400:  # its end is over already
                raise NotDone(str(reply.body))
            raise Unexpected

        sent = Sent("PUT", self._base(), f"/blocklist/{kind}/{name}", body)
        await self._do(BLOCKLIST, f"{kind}/{name}", "block", given, sent, result)

    async def _unblock(self) -> None:
        await self.unblock(*self._chance.choice(self._world.places))

    async def unblock(self, kind: str, name: str) -> None:

        def result(reply: Reply) -> Any:
            if reply.status not in (200, 404):
                raise Unexpected
            return None if reply.status == 200 else blocklist.REFUSED

        sent = Sent("DELETE", self._base(), f"/blocklist/{kind}/{name}")
        await self._do(BLOCKLIST, f"{kind}/{name}", "unblock", {}, sent, result)

    async def list_blocklist(self) -> None:
        seen = await self._world.recorder.read(self._world.calls, self._sent("/blocklist"))
        if seen is None:
            return
        invoked, returned, body = seen
        shown = {f"nodes/{name}": _entry(each) for name, each in body["blockedNodes"].items()}
        shown |= {f"taskmanagers/{name}": _entry(each) for name, each in body["blockedTaskManagers"].items()}
        self._world.recorder.histories[BLOCKLIST].extend(
            Operation(
                client=self.name,
                key=f"{kind}/{name}",
                kind="list",
                invoked=invoked,
                returned=returned,
                result=shown.get(f"{kind}/{name}"),
            )
            for kind, name in self._world.places
        )

    # --- requests -----------------------------------------------------------------------------------------------------

    def _base(self) -> str:
        return self._chance.choice(self._world.urls)

    def _sent(self, path: str) -> Sent:
        return self._hurried(Sent("GET", self._base(), path))

    def _hurried(self, sent: Sent) -> Sent:
        hurry, self.hurry = self.hurry, None
        return sent if hurry is None else replace(sent, seconds=self._chance.uniform(*HURRIED_SECONDS), abandoned=hurry)

    async def _do(
        self, history: str, key: str, kind: str, arguments: dict[str, Any], sent: Sent, result: Callable[[Reply], Any]
    ) -> bool:
        begun = Operation(client=self.name, key=key, kind=kind, arguments=arguments, invoked=time.monotonic())
        return await self._world.recorder.record(self._world.calls, history, begun, self._hurried(sent), result)


def _status(body: dict[str, Any]) -> dict[str, Any]:
    return {"status": body["state"], "attempt": body["emberkeep"]["attempt"]}


def _entry(body: dict[str, Any]) -> Any:
    return blocklist.shown(blocklist.Entry(body["action"], body["endTimestamp"], body["cause"]))
