"""The judgement of a whole history: what a doctored run shows, and what the report says about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from campaign.kept import write_record
from campaign.linearizability.blocklist import REFUSED
from campaign.linearizability.history import Operation
from campaign.linearizability.job_store import ABSENT
from campaign.processes.deeds import Deed, Ended, Rules
from campaign.processes.figures import FailedHistory, ProcessFigures
from campaign.processes.gateways.late_writes import ACKNOWLEDGED, LateWrite
from campaign.processes.history import end_of
from campaign.processes.level import replay
from campaign.processes.plan import KINDS, HistoryPlan, draw_plan
from campaign.processes.record import HistoryRecord, judge_record, read_record, recoveries
from campaign.processes.strikes import Strike
from campaign.processes.transfers.hits import NETWORK, RECEIVER
from campaign.processes.transfers.seen import SeenFile
from campaign.progress import Progress
from campaign.report import write
from emberkeep.blocklist.model import PERMANENT

JOB, OTHER = "a" * 32, "b" * 32
ENTRY = {"action": "MARK_BLOCKED", "end": PERMANENT, "cause": "fan"}


def operation(kind: str, at: float, result: Any = None, key: str = "key", **arguments: Any) -> Operation:
    return Operation(client="c", key=key, kind=kind, arguments=arguments, invoked=at, returned=at + 0.5, result=result)


def accepted(at: float, job_id: str = JOB) -> Operation:
    return operation("submit", at, {"jobid": job_id, "created": True}, jobid=job_id)


def shown(at: float, status: str, attempt: int = 1) -> Operation:
    return operation("read", at, {"status": status, "attempt": attempt}, jobid=JOB)


BLOCK = operation("block", 1, ENTRY, "nodes/n", action="MARK_BLOCKED", end=PERMANENT, cause="fan", merge=False)
DEEDS = (
    Deed(attempt=1, pid=11, what="began", at=2.0),
    Deed(attempt=1, pid=11, what="file", at=2.1),
    Deed(attempt=1, pid=11, what="commit", at=3.0, number=1, asked=3.0),
    Deed(attempt=1, pid=11, what="ended", at=4.0),
)


def late(answer: str) -> LateWrite:
    return LateWrite(attempt=1, newer=2, what="rename it", asked=8.0, answer=answer)


def seen(whole: bool) -> SeenFile:
    return SeenFile(attempt=1, executor="1", pid=12, at=3.5, name="data.bin", whole=whole)


GOOD = HistoryRecord(
    plan=HistoryPlan("7-0", 30.0, ()),
    rules=Rules(lease=6.0, freeze=3.0),
    unix_minus_clock=1_000.0,
    strikes=(
        Strike(kind="kill leader", target="jm-1", at=1.2, until=2.0),
        Strike(kind="freeze driver", target="11", at=2.5, until=2.9),
        Strike(kind="freeze task manager", target="tm-1", at=2.6, until=2.8, transfers=(RECEIVER,)),
        Strike(kind="cut: task manager", target="tm-1 <-> jm-1", at=2.6, until=2.8, transfers=(NETWORK,)),
    ),
    jobs=(accepted(1), shown(3, "RUNNING"), shown(6, "FINISHED")),
    blocklist=(BLOCK, operation("unblock", 3, None, "nodes/n"), operation("list", 5, None, "nodes/n")),
    answered=((1.0, 1.5), (1.3, 4.2)),
    counts={"submit: done": 1, "block: done": 1, "block: unknown": 2},
    deeds={JOB: DEEDS},
    late={JOB: (late("AccessControlException"), late(""))},
    seen={JOB: (seen(True),)},
    ends=(Ended(job_id=JOB, status="FINISHED", shown=6.5, cancelled=False, entries=1),),
    problems=(),
)


def test_a_history_without_violations() -> None:
    judgement = judge_record(GOOD)
    assert (judgement.violations, judgement.objects, judgement.undecided) == ((), 2, 0)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        pytest.param(
            {"jobs": (*GOOD.jobs, shown(8, "RUNNING"))}, "job store: key: violated", id="a deposed leader answers"
        ),
        pytest.param(
            {"blocklist": (*GOOD.blocklist, operation("list", 8, ENTRY, "nodes/n"))},
            "blocklist: nodes/n: violated",
            id="a deposed leader lists",
        ),
        pytest.param(
            {"jobs": (*GOOD.jobs, accepted(8, OTHER))}, "job store: key: violated", id="a takeover forgets a key"
        ),
        pytest.param(
            {"jobs": (*GOOD.jobs, operation("read", 8, ABSENT, jobid=JOB))},
            "job store: key: violated",
            id="a takeover forgets a job",
        ),
        pytest.param(
            {"blocklist": (BLOCK, operation("unblock", 3, REFUSED, "nodes/n"))},
            "blocklist: nodes/n: violated",
            id="a takeover forgets an entry",
        ),
        pytest.param(
            {"deeds": {JOB: (*DEEDS, Deed(attempt=2, pid=12, what="began", at=9.0))}},
            "after its end was shown",
            id="a job whose success was reported runs again",
        ),
        pytest.param(
            {"deeds": {JOB: (*DEEDS, Deed(attempt=2, pid=12, what="began", at=2.5))}},
            "committed entry 1",
            id="the fence is not checked",
        ),
        pytest.param({"problems": ("tm-1 does not start",)}, "tm-1 does not start", id="a member does not recover"),
        pytest.param(
            {"stored": {JOB: ()}, "late": {JOB: (late(ACKNOWLEDGED),)}},
            f"job {JOB}: attempt 1 asked at 8.000 to rename it, after attempt 2 was admitted, and was not refused",
            id="a gateway stores for an attempt that is over",
        ),
        pytest.param(
            {"seen": {JOB: (seen(True), seen(False))}},
            f"job {JOB}: executor 1 of attempt 1 has not found data.bin as it was submitted, at 3.500",
            id="a partial file",
        ),
    ],
)
def test_a_doctored_history_fails(change: dict[str, Any], found: str) -> None:
    (violation,) = judge_record(msgspec.structs.replace(GOOD, **change)).violations
    assert found in violation


@pytest.mark.parametrize(
    ("jobs", "status", "found"),
    [
        pytest.param(
            (accepted(1), operation("cancel", 2, jobid=JOB), shown(6, "FINISHED")),
            "FINISHED",
            "its script has ended after its cancellation was acknowledged at 2.500",
            id="it ends as if nothing had been asked",
        ),
        pytest.param(
            (accepted(1), operation("cancel", 2, jobid=JOB), shown(3, "RUNNING"), operation("cancel", 5, jobid=JOB)),
            "CANCELED",
            "it was shown as RUNNING at 3.000, after its cancellation was acknowledged at 2.500",
            id="a second request takes effect",
        ),
        pytest.param(
            (accepted(1), operation("cancel", 2, jobid=JOB), shown(3, "RESTARTING", attempt=2)),
            "CANCELED",
            "job store: key: violated",
            id="it starts again",
        ),
        pytest.param(
            (accepted(1), operation("cancel", 4, jobid=JOB), shown(6, "FINISHED")), "FINISHED", "", id="it had ended"
        ),
    ],
)
def test_a_cancellation_that_was_acknowledged_and_lost(jobs: tuple[Operation, ...], status: str, found: str) -> None:
    record = msgspec.structs.replace(GOOD, jobs=jobs, ends=(end_of(JOB, status, jobs, 1),))
    violations = judge_record(record).violations
    assert len(violations) == bool(found), violations
    assert found in "".join(violations)


def test_a_kept_history_is_judged_again(tmp_path: Path) -> None:
    path, said = tmp_path / "history-3.json", list[str]()
    write_record(path, GOOD)
    assert read_record(path) == GOOD
    assert replay(path, said.append, verbose=True) == 0
    assert said[:2] == ["  0.000–0.800 kill leader: jm-1", "  1.300–1.700 freeze driver: 11"]
    write_record(path, msgspec.structs.replace(GOOD, problems=("lost",)))
    assert replay(path, said.append, verbose=False) == 1
    assert said[-1] == "violation: lost"
    path.write_text("{}")
    with pytest.raises(ValueError, match="is no history of version 1"):
        read_record(path)


def test_figures_of_earlier_code_lack_what_was_not_counted_then() -> None:
    figures = msgspec.json.decode(b'{"histories": 3, "faults": {"kill leader": 7}}', type=ProcessFigures)
    assert (figures.histories, figures.late, figures.files, figures.on_transfers) == (3, 0, 0, {})
    figures.took(GOOD, judge_record(GOOD), 45.0)
    assert (figures.late, figures.files, figures.on_transfers) == (1, 2, {"all": 2, RECEIVER: 1, NETWORK: 1})


def test_recovery_is_counted_until_the_next_work() -> None:
    found = {kind: round(seconds, 3) for kind, seconds in recoveries(GOOD)}
    assert found == {"kill leader": 3.0, "freeze driver": 0.5}


def test_the_report_has_the_figures(tmp_path: Path) -> None:
    progress = Progress(seed=5)
    for _ in range(2):
        progress.real.took(GOOD, judge_record(GOOD), 45.0)
    progress.real.failures.append(FailedHistory(1, "job store: a|b", ".campaign/5/processes/history-1.json"))
    text = write(tmp_path, progress, "make campaign SEED=5 LEVELS=processes").read_text()
    for part in (
        "| histories | 2 of seed 5 |",
        "| faults | 8 |",
        "| faults per minute under faults | 8 |",
        "| requests for attempts that were over, answered by state gateways | 2 |",
        "| files of jobs that drivers and executors have compared | 4 |",
        f"| faults that have hit a running BLOB transfer | 4: 2 the {NETWORK}, 2 the {RECEIVER} |",
        "| operations | 4 with a reply, 4 with an unknown outcome |",
        "| objects whose histories were checked | 4, 0 undecided |",
        "| jobs | 2 FINISHED |",
        "| 1 | job store: a\\|b | .campaign/5/processes/history-1.json |",
        "| kill leader | 2 | 3.00 | 3.00 | – | 3.00 | 3.00 |",
    ):
        assert part in text
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["processes"]["recovery"]["kill leader"]["median"] == 3.0
    assert msgspec.convert(data["processes"]["figures"], ProcessFigures) == progress.real


def test_a_plan_is_the_same_for_the_same_seed_and_has_some_kinds_only() -> None:
    plan = draw_plan("7-1", 60.0, 3.0)
    assert plan == draw_plan("7-1", 60.0, 3.0) != draw_plan("7-2", 60.0, 3.0)
    kinds = {fault.kind for fault in plan.faults}
    assert kinds < set(KINDS)
    assert all(0.0 < fault.at < 60.0 for fault in plan.faults)
    assert {fault.kind for n in range(40) for fault in draw_plan(f"8-{n}", 60.0, 3.0).faults} == set(KINDS)
