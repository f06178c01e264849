"""Streams over the flights of 2013 as jobs of a cluster on several hosts, and the checks of their output."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from emberkeep.jobs.model import JobStatus
from emberkeep.protocol.rest_jobs import JobDetailsInfo
from examples.flights import verify
from examples.flights.feed import load_flights, publish
from tests.integration.conditions import until
from tests.integration.hosts.host import SHARED
from tests.integration.hosts.requirements import CHECKOUT
from tests.integration.hosts.site import HostedCluster, own_files

_FILES = 24


@dataclass(frozen=True)
class Pipeline:
    """A script that takes the options of the example pipeline.

    ``problems``: what is wrong with the output, for the directories of input and output; "" if nothing is.
    """

    script: Path
    problems: Callable[[Path, Path], str]


def _problems_of_delays(flights: Path, output: Path) -> str:
    answer = verify.batch_answer(verify.read_input(flights))
    comparison = verify.compare(answer.windows, verify.read_output(output))
    assert len(answer.windows)
    return verify.report(answer, comparison) if comparison.mismatches else ""


DELAYS = Pipeline(CHECKOUT / "examples" / "flights" / "pipeline.py", _problems_of_delays)


class Flights:
    """All files are there at once; the pipeline reads one in each micro-batch, at least a second apart."""

    def __init__(self, cluster: HostedCluster, *options: str, pipeline: Pipeline = DELAYS, executors: int = 1) -> None:
        self._cluster = cluster
        self._problems = pipeline.problems
        self._place = cluster.network.shared / "flights"
        publish(load_flights(), self._place / "in", _FILES, 0.0)
        own_files(self._place)
        home = cluster.client.home()
        cluster.client.write(home / "pipeline.py", pipeline.script.read_text())
        place = SHARED / "flights"
        paths = ("--input", str(place / "in"), "--output", str(place / "out"))
        pace = ("--files-per-batch", "1", "--trigger", "1 second")
        self.job_id = cluster.submit("pipeline.py", *options, arguments=(*paths, *pace), executors=executors)
        cluster.wait_for(self.job_id, lambda job: job.state is JobStatus.RUNNING, "the flights are being read")

    def go_on(self, what: str, batches: int = 2) -> None:
        """Wait until more micro-batches are done than now, unless all were."""
        before = self._newest_batch(what, 0)
        self._newest_batch(what, min(before + batches, _FILES))

    def stand_still(self, seconds: float) -> None:
        """Wait until no micro-batch was done for so long."""
        newest, since = -1, time.monotonic()

        def is_still() -> bool:
            nonlocal newest, since
            batch = self._newest_batch("at all", 0)
            if batch != newest:
                newest, since = batch, time.monotonic()
            return time.monotonic() - since >= seconds

        until(is_still, self._cluster.story)

    def _newest_batch(self, what: str, least: int) -> int:
        return _newest(self._cluster.wait_for(self.job_id, lambda job: _newest(job) >= least, f"batches {what}"))

    def end(self) -> None:
        """Wait for the end. Fails if a row was lost, or came out twice."""
        for batch in range(_FILES):  # each has its time, on a slow machine as well
            self._cluster.wait_for(
                self.job_id,
                lambda job, batch=batch: _newest(job) >= batch or job.state.is_globally_terminal,  # type: ignore[misc]
                f"batch {batch}",
            )
        job = self._cluster.wait_for(self.job_id, lambda job: job.state.is_globally_terminal, "the job ends")
        assert job.state is JobStatus.FINISHED, job
        assert not (problems := self._problems(self._place / "in", self._place / "out")), problems


def _newest(job: JobDetailsInfo) -> int:
    return max((query.batch_id for query in job.emberkeep.queries), default=-1)
