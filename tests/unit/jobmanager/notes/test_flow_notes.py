"""What is noted of a pipeline's flows: each new state once."""

from __future__ import annotations

from emberkeep.chronicle.occurrence import What
from emberkeep.jobmanager.notes.job_notes import JobNotes
from emberkeep.jobs.progress.flows import FlowProgress
from emberkeep.protocol.messages.job_master_reports import JobMasterStatus


def flow(name: str, state: str, time_ms: int = 100) -> FlowProgress:
    return FlowProgress(name=name, state=state, changed_ms=time_ms, message=f"Flow {name} is {state}.")


def noted(notes: JobNotes, *flows: FlowProgress, attempt: int = 1) -> list[tuple[str, dict[str, str]]]:
    status = JobMasterStatus(sequence=1, requirements=(), executors=(), flows=flows)
    found = list(notes.reported(attempt, status, 0))
    return [(each.message, each.details) for each in found if each.what == What.FLOW]


def entry(name: str, state: str) -> tuple[str, dict[str, str]]:
    return f"Flow {name} is {state}.", {"flow": name, "state": state}


def test_each_state_of_each_flow_is_noted_once() -> None:
    notes = JobNotes("job", 0, 0)
    assert noted(notes) == []
    assert noted(notes, flow("a", "QUEUED"), flow("b", "QUEUED")) == [entry("a", "QUEUED"), entry("b", "QUEUED")]
    assert noted(notes, flow("a", "RUNNING"), flow("b", "QUEUED")) == [entry("a", "RUNNING")]
    assert noted(notes, flow("a", "RUNNING"), flow("b", "QUEUED")) == []
    assert noted(notes, flow("a", "RUNNING", 200), flow("b", "QUEUED")) == [entry("a", "RUNNING")], "a retry"


def test_a_later_attempt_runs_its_flows_itself() -> None:
    notes = JobNotes("job", 0, 0)
    assert noted(notes, flow("a", "COMPLETED")) == [entry("a", "COMPLETED")]
    assert noted(notes, flow("a", "COMPLETED"), attempt=2) == [entry("a", "COMPLETED")]


def test_what_happened_before_the_leader_began_is_not_noted_again() -> None:
    notes = JobNotes("job", 1, 1000)
    assert noted(notes, flow("a", "COMPLETED", 900), flow("b", "RUNNING", 1100)) == [entry("b", "RUNNING")]
