"""What Slurm's commands print, as the resource driver understands it, and the arguments that it gives them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.slurm.nodes import SlurmNode, parse_nodes
from emberkeep.adapters.slurm.queue import Phase, QueuedJob, parse_queue
from emberkeep.adapters.slurm.submission import Request, batch_script, sbatch_arguments, submitted_id
from emberkeep.base.errors import Unavailable

RECORDED = Path(__file__).parent / "recorded" / "squeue-22.05.8.json"


def queue(**job: object) -> QueuedJob:
    entry = {"job_id": 7, "name": "x-tm-0", "job_state": "RUNNING", **job}
    (found,) = parse_queue(msgspec.json.encode({"jobs": [entry]}))
    return found


def test_a_queue_that_slurm_22_05_8_has_printed() -> None:
    jobs = {job.job_id: job for job in parse_queue(RECORDED.read_bytes())}
    assert jobs[1] == QueuedJob(1, "default-tm-0", Phase.RUNNING, "RUNNING", "", "n1", 1000)
    assert jobs[2] == QueuedJob(2, "default-tm-0", Phase.QUEUED, "PENDING", "Dependency", "", 1000)
    assert jobs[3].reason == "ReqNodeNotAvail, UnavailableNodes:n2"
    assert jobs[5] == QueuedJob(5, "held", Phase.ENDED, "FAILED", "BadConstraints", "", 1000)


def test_a_name_that_is_not_utf_8_spoils_no_queue() -> None:
    """Any user of the Slurm cluster can submit a job with such a name."""
    printed = b'{"jobs": [{"job_id": 1, "name": "caf\xe9", "job_state": "RUNNING"},'
    printed += b' {"job_id": 2, "name": "x-tm-0", "job_state": "RUNNING"}]}'
    assert [job.name for job in parse_queue(printed)] == ["caf\ufffd", "x-tm-0"]


def test_later_releases_write_states_as_lists_and_numbers_as_objects() -> None:
    job = queue(
        job_id={"set": True, "infinite": False, "number": 8},
        job_state=["RUNNING", "COMPLETING"],
        user_id={"set": False, "number": 0},
    )
    assert job == QueuedJob(8, "x-tm-0", Phase.ENDED, "RUNNING+COMPLETING")


@pytest.mark.parametrize(
    ("state", "phase"),
    [
        ("PENDING", Phase.QUEUED),
        ("CONFIGURING", Phase.QUEUED),
        (["RUNNING", "CONFIGURING"], Phase.QUEUED),
        ("RUNNING", Phase.RUNNING),
        ("SUSPENDED", Phase.RUNNING),
        ("COMPLETING", Phase.ENDED),
        ("COMPLETED", Phase.ENDED),
        ("CANCELLED", Phase.ENDED),
        ("TIMEOUT", Phase.ENDED),
        ("PREEMPTED", Phase.ENDED),
        ("NODE_FAIL", Phase.ENDED),
        ("OUT_OF_MEMORY", Phase.ENDED),
        ("BOOT_FAIL", Phase.ENDED),
    ],
)
def test_phases_of_a_job(state: object, phase: Phase) -> None:
    assert queue(job_state=state).phase is phase


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"slurm_load_jobs error",
        b"[]",
        b"{}",
        b'{"jobs": {}}',
        b'{"jobs": [1]}',
        b'{"jobs": [{"job_id": 1, "name": "x"}]}',
        b'{"jobs": [{"job_id": "1", "name": "x", "job_state": "RUNNING"}]}',
        b'{"jobs": [], "errors": [{"error": "no contact"}]}',
        b'{"jobs": [], "errors": [{"description": "Failed while looking for jobs", "error_number": -1}]}',
    ],
)
def test_other_output_is_never_an_empty_queue(output: bytes) -> None:
    with pytest.raises(Unavailable, match="squeue --json"):
        parse_queue(output)


def test_nodes_and_why_they_are_out_of_service() -> None:
    printed = (
        "n1|mixed|Unknown|none\nn1|mixed|Unknown|none\n"
        "n2|drained*|2026-11-26T17:05:00|disk is | failing\nn3|down*|2026-11-26T17:05:00|Not responding\nnonsense\n"
    )
    first, second, third = parse_nodes(printed)
    assert first == SlurmNode("n1", "mixed")
    assert (second.reason, second.is_drained) == ("disk is | failing", True)
    assert second.since_ms > 0
    assert not third.is_drained, "a node without contact is not out of service"


def test_arguments_of_a_submission() -> None:
    request = Request(cpus=4, memory_mb=8704, signal_seconds=300, output="/o/%x-%j.log", directory="/d")
    arguments = sbatch_arguments(request, "default-tm-3", ("n2", "n1"))
    assert "--exclude=n1,n2" in arguments
    assert not [each for each in arguments if each.startswith(("--time", "--partition", "--gres"))]
    assert batch_script(["python", "-D", "a=b c"]) == "#!/bin/sh\nexec python -D 'a=b c'\n"


@pytest.mark.parametrize(
    ("printed", "job_id"), [("17\n", 17), ("17;cluster\n", 17), ("a note\n17\n", 17), ("", None), ("Submitted\n", None)]
)
def test_the_id_of_a_submission(printed: str, job_id: int | None) -> None:
    assert submitted_id(printed) == job_id
