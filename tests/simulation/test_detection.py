"""Which nodes detection blocks over thousands of seeded histories: how many of the bad ones, and how many good ones.

The world knows the truth: which nodes are bad, and since when; which jobs are at fault themselves, or fill the disks on
which others depend. The detector sees only what a JobManager sees: where executors fail and with what words, where they
run, which nodes are registered. Nodes leave and come back, blocked ones most of all.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from emberkeep.base.ids import JobId
from emberkeep.blocklist.detection import DetectionLimits, FaultDetector
from emberkeep.blocklist.symptoms import Symptom, symptom_of
from tests.campaign import seeds

HISTORIES = seeds(50, theme="detection", times=4)
LIMITS = DetectionLimits(witnesses=3, max_share=0.2, window=600.0, proof=30.0, respect=3600.0)
STEP = 10.0  # seconds
SECONDS = 1500.0  # of each history
LEAVES, BLOCKED_LEAVES = 0.002, 0.05  # how likely a node leaves in a step
NO_SPACE = "java.io.IOException: No space left on device"
WORDS = {
    Symptom.READ_ONLY: "[Errno 30] Read-only file system: '/data'",
    Symptom.IO_ERROR: "OSError: [Errno 5] Input/output error: '/data'",
    Symptom.NOT_STARTED: "its start took too long",
}


@dataclass
class Job:
    """``fails_after``: seconds after which each executor of a job that is at fault fails, wherever it is.
    ``fills_after``: seconds after which each of its executors has filled the disk of its node."""

    job_id: JobId
    executors: dict[int, tuple[str, float]] = field(default_factory=dict)  # node, and since when
    fails_after: float | None = None
    fills_after: float | None = None
    ends: float = float("inf")


@dataclass
class World:
    """``bad``: what is wrong with a node, since when, and how likely an executor there fails in a step. ``lingers``:
    seconds for which a disk stays full when the executor that has filled it is gone; ``harm``: how likely an executor
    there fails in a step."""

    rng: random.Random
    nodes: list[str]
    bad: dict[str, tuple[Symptom, float, float]]
    jobs: list[Job]
    lingers: float = 0.0
    harm: float = 0.0
    detector: FaultDetector = field(default_factory=lambda: FaultDetector(LIMITS))
    away: dict[str, float] = field(default_factory=dict)  # until when
    full: dict[str, float] = field(default_factory=dict)  # until when
    blocked: dict[str, float] = field(default_factory=dict)  # since when
    causes: list[str] = field(default_factory=list)
    met: dict[str, set[JobId]] = field(default_factory=dict)  # jobs without fault that failed on a bad node

    def run(self, seconds: float) -> None:
        now = 0.0
        while now < seconds:
            now += STEP
            self._move(now)
            for job in self.jobs:
                if now < job.ends:
                    self._live(job, now)
                elif job.executors:
                    job.executors.clear()
                    self.detector.succeeded(job.job_id)
            suspicions = self.detector.decide(self.present(), frozenset(self.blocked), now)
            for suspicion in suspicions:
                self.blocked[suspicion.node_id] = now
                self.causes.append(suspicion.cause)
            everything = {*self.present(), *self.blocked}
            assert not suspicions or len(self.blocked) <= LIMITS.max_share * len(everything), "never above the share"

    def present(self) -> list[str]:
        """The nodes that are registered."""
        return [node for node in self.nodes if node not in self.away]

    def _move(self, now: float) -> None:
        self.away = {node: until for node, until in self.away.items() if until > now}
        for node in self.present():
            leaves = self.rng.random() < (BLOCKED_LEAVES if node in self.blocked else LEAVES)
            if leaves and len(set(self.present()) - self.blocked.keys()) > 3:
                self.away[node] = now + self.rng.uniform(60.0, 900.0)

    def _live(self, job: Job, now: float) -> None:
        for number, (node, since) in list(job.executors.items()):
            words = "its node was lost" if node in self.away else self._failure(job, node, since, now)
            if words is not None:
                del job.executors[number]
                job.executors[number] = (self._place(), now + self.rng.uniform(1.0, 10.0))  # its replacement
                symptom = symptom_of(words, started=words not in WORDS[Symptom.NOT_STARTED])
                if symptom is not None:
                    self.detector.failed(job.job_id, node, symptom, now)
        self.detector.runs(job.job_id, {node for node, since in job.executors.values() if since <= now}, now)

    def _place(self) -> str:
        """Where the fewest executors are, as the slot manager does it: a node where all fail draws more of them."""
        load = dict.fromkeys((node for node in self.present() if node not in self.blocked), 0)
        for job in self.jobs:
            for node, _ in job.executors.values():
                if node in load:
                    load[node] += 1
        least = min(load.values())
        return self.rng.choice([node for node, count in load.items() if count == least])

    def _failure(self, job: Job, node: str, since: float, now: float) -> str | None:
        if since > now:
            return None
        if job.fails_after is not None and now - since >= job.fails_after:
            return WORDS[Symptom.IO_ERROR]  # the worst case: it looks like the node's fault
        if job.fills_after is not None and now - since >= job.fills_after:
            self.full[node] = now + self.lingers
        if self.full.get(node, -1.0) >= now and self.rng.random() < self.harm:
            return NO_SPACE
        symptom, bad_since, chance = self.bad.get(node, (Symptom.IO_ERROR, float("inf"), 0.0))
        if now >= bad_since and self.rng.random() < chance:
            self.met.setdefault(node, set()).add(job.job_id)
            return WORDS[symptom]
        return "killed by signal 9" if self.rng.random() < 0.0005 else None


def jobs_of(rng: random.Random, nodes: list[str], good: int, faulty: int) -> Iterator[Job]:
    for number in range(good + faulty):
        job = Job(JobId(f"{rng.getrandbits(128):032x}"))
        if number >= good:
            # At once, within minutes, or only after so long that it seems to work elsewhere meanwhile.
            job.fails_after = rng.choice((0.0, 10.0, 60.0, 300.0))
        for executor in range(rng.randint(1, 4) if rng.random() < 0.8 else rng.randint(5, max(5, len(nodes)))):
            job.executors[executor] = (rng.choice(nodes), rng.uniform(0.0, 60.0))
        if rng.random() < 0.3:
            job.ends = rng.uniform(120.0, 1800.0)
        yield job


def world_of(seed: int, *, bad: int, faulty: int = 0, fillers: int = 0) -> World:
    """Jobs of three kinds: good ones, ``faulty`` ones and ``fillers``."""
    rng = random.Random(f"{seed}/{bad}/{faulty}")
    nodes = [f"node-{number}" for number in range(rng.randint(10, 40))]
    troubles = [Symptom.IO_ERROR] if rng.random() < 0.3 else list(WORDS)
    sick = {
        node: (rng.choice(troubles), rng.uniform(60.0, 600.0), rng.uniform(0.05, 0.9))
        for node in rng.sample(nodes, bad)
    }
    good = rng.randint(len(nodes) // 2, 2 * len(nodes))
    jobs = list(jobs_of(rng, nodes, good, faulty + fillers))
    for job in jobs[good + faulty :]:
        job.fails_after, job.fills_after, job.ends = None, rng.choice((20.0, 60.0, 200.0)), float("inf")
    return World(rng, nodes, sick, jobs, rng.choice((0.0, 60.0, float("inf"))), rng.choice((0.1, 0.3, 0.9)))


@dataclass
class Tally:
    """What came of some histories. ``shown``: bad nodes on which enough jobs failed. ``false``: good nodes blocked."""

    histories: int = 0
    bad: int = 0
    shown: int = 0
    found: int = 0
    false: int = 0
    wronged: int = 0  # histories
    delays: list[float] = field(default_factory=list)

    def run(self, world: World) -> None:
        world.run(SECONDS)
        assert all(cause.startswith("detected: ") for cause in world.causes)
        self.histories += 1
        self.bad += len(world.bad)
        self.shown += sum(len(jobs) >= LIMITS.witnesses for jobs in world.met.values())
        hits = [node for node in world.blocked if node in world.bad]
        self.found += len(hits)
        self.delays += [world.blocked[node] - world.bad[node][1] for node in hits]
        self.false += len(world.blocked) - len(hits)
        self.wronged += len(world.blocked) > len(hits)

    def __str__(self) -> str:
        delay = sorted(self.delays)[len(self.delays) // 2] if self.delays else float("nan")
        return (
            f"{self.histories} histories: of {self.bad} bad nodes {self.shown} met enough jobs, {self.found} were "
            f"found ({self.found / max(1, self.shown):.1%}), half of them within {delay:.0f} s; {self.false} good "
            f"nodes blocked in {self.wronged} histories"
        )


@pytest.mark.campaign
@pytest.mark.req("BLK-19")
def test_most_bad_nodes_are_found_and_hardly_any_good_one_is_blocked() -> None:
    tally = Tally()
    for seed in HISTORIES:
        tally.run(world_of(seed, bad=seed % 3, faulty=seed % 4))
    print(tally)
    assert tally.found >= 0.8 * tally.shown, tally
    assert tally.false <= len(HISTORIES) // 50, tally


@pytest.mark.campaign
@pytest.mark.req("BLK-19")
def test_a_job_that_fills_one_disk_after_the_other_takes_no_good_node_with_it() -> None:
    """Its victims would be as good witnesses as there are, if a full disk counted."""
    tally = Tally()
    for seed in HISTORIES[: len(HISTORIES) // 2]:
        tally.run(world_of(seed, bad=seed % 3, fillers=1 + seed % 2))
    print(tally)
    assert tally.found >= 0.8 * tally.shown, tally
    assert tally.wronged <= tally.histories // 150, tally


@pytest.mark.campaign
@pytest.mark.req("BLK-19")
def test_jobs_that_always_fail_block_nothing() -> None:
    for seed in HISTORIES[: len(HISTORIES) // 10]:
        rng = random.Random(seed)
        nodes = [f"node-{number}" for number in range(rng.randint(3, 20))]
        jobs = list(jobs_of(rng, nodes, 0, rng.randint(1, 20)))
        for job in jobs:
            job.fails_after = rng.choice((0.0, 10.0, 25.0))
        world = World(rng, nodes, {}, jobs)
        world.run(SECONDS)
        assert not world.blocked, f"seed {seed}: {world.causes}"
