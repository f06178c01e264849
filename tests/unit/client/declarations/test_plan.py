import dataclasses

import pytest

from emberkeep.base.errors import Conflict, InvalidInput
from emberkeep.base.ids import JobId
from emberkeep.client.declarations.apply import replaced_by
from emberkeep.client.declarations.declaration import Declaration, DeclaredJob
from emberkeep.client.declarations.differences import Change
from emberkeep.client.declarations.plan import Choice, Known, Plan, Step, Stop, make_plan, upgrade_id
from emberkeep.client.submission.successor_key import successor_key
from emberkeep.jobs.model import JobStatus
from emberkeep.jobs.upgrades.model import UpgradePhase
from emberkeep.lifecycle.model import Procedure, ProcedurePhase
from emberkeep.protocol.upgrades.rest_upgrades import UpgradeInfo

WANTED = DeclaredJob(declaration=Declaration(version=1, name="counts", script="app.py"), files={"script app.py": "a"})
OTHER = DeclaredJob(declaration=WANTED.declaration, files={"script app.py": "b"})
CHANGE = (Change("content of script app.py", "b", "a"),)
R, F = JobStatus.RUNNING, JobStatus.FINISHED


def stop(procedure: Procedure, phase: ProcedurePhase, location: str = "") -> Stop:
    return Stop(procedure, phase, "r1", location)


SUSPENDING = stop(Procedure.SUSPEND, ProcedurePhase.COPYING)
SUSPENDED = stop(Procedure.SUSPEND, ProcedurePhase.COMPLETED, "/s/1")
FAILED_STOP = stop(Procedure.SUSPEND, ProcedurePhase.FAILED)
DRAINING = stop(Procedure.DRAIN, ProcedurePhase.DRAINING)
DRAINED = stop(Procedure.DRAIN, ProcedurePhase.COMPLETED, "/s/1")


def known(state: JobStatus, record: DeclaredJob | None, stop: Stop | None = None, *, is_readable: bool = True) -> Known:
    return Known("ab" * 16, state, is_readable, record, stop)


@pytest.mark.parametrize(
    ("job", "choice", "step", "savepoint", "changes"),
    [
        (None, Choice(), Step.START, "", ()),
        (None, Choice("/s/2"), Step.START, "/s/2", ()),
        (known(R, WANTED), Choice(), Step.NOTHING, "", ()),
        (known(JobStatus.CREATED, WANTED), Choice(), Step.NOTHING, "", ()),
        (known(R, OTHER), Choice(), Step.UPGRADE, "", CHANGE),
        (known(JobStatus.RESTARTING, OTHER, FAILED_STOP), Choice(), Step.UPGRADE, "", CHANGE),
        (known(R, WANTED, FAILED_STOP), Choice(), Step.NOTHING, "", ()),
        (known(R, OTHER, SUSPENDING), Choice(), Step.WAIT_AND_START, "", CHANGE),
        (known(R, WANTED, SUSPENDING), Choice(), Step.WAIT_AND_START, "", ()),
        (known(R, OTHER, SUSPENDED), Choice(), Step.WAIT_AND_START, "", CHANGE),
        (known(F, OTHER, SUSPENDED), Choice(), Step.START, "/s/1", CHANGE),
        (known(F, WANTED, SUSPENDED), Choice(), Step.START, "/s/1", ()),
        (known(JobStatus.FAILED, OTHER, SUSPENDED), Choice(), Step.START, "/s/1", CHANGE),
        (known(F, WANTED), Choice(), Step.NOTHING, "", ()),
        (known(F, WANTED, DRAINED), Choice(), Step.NOTHING, "", ()),
        (known(F, OTHER), Choice(), Step.START, "", CHANGE),
        (known(F, None), Choice(), Step.START, "", ()),
        (known(F, WANTED), Choice(again=True), Step.START, "", ()),
        (known(JobStatus.FAILED, WANTED), Choice(again=True), Step.START, "", ()),
        (known(JobStatus.CANCELED, OTHER), Choice("/s/2"), Step.START, "/s/2", CHANGE),
        (known(F, None, is_readable=False), Choice(again=True), Step.START, "", ()),
    ],
)
def test_the_plan(job: Known | None, choice: Choice, step: Step, savepoint: str, changes: tuple[Change, ...]) -> None:
    found = make_plan(WANTED, job, choice)
    assert found == Plan(step, found.reason, savepoint, changes)
    assert found.reason


@pytest.mark.parametrize(
    ("job", "message", "hint"),
    [
        (known(R, None), "was not declared by a file", "stop or cancel it"),
        (known(JobStatus.CANCELLING, OTHER), "is CANCELLING", "apply again when it has ended"),
        (known(R, OTHER, DRAINING), "is being drained", "apply again when it has ended"),
        (known(F, OTHER, DRAINED), "was drained", "--from-savepoint /s/1"),
        (known(JobStatus.FAILED, WANTED), "is FAILED", "--again"),
        (known(JobStatus.CANCELED, OTHER), "is CANCELED", "--again"),
        (known(F, None, is_readable=False), "no longer knows", "--again"),
        (known(F, None, SUSPENDED), "was not declared by a file", "--from-savepoint /s/1"),
    ],
)
def test_a_person_decides_where_state_could_be_lost(job: Known, message: str, hint: str) -> None:
    with pytest.raises(Conflict, match=message) as error:
        make_plan(WANTED, job, Choice())
    assert hint in (error.value.hint or "")


@pytest.mark.parametrize("choice", [Choice(again=True), Choice("/s/1")])
def test_a_running_job_is_not_started_again(choice: Choice) -> None:
    with pytest.raises(InvalidInput, match="for jobs that have ended"):
        make_plan(WANTED, known(R, WANTED), choice)


def test_a_job_has_one_successor() -> None:
    keys = {
        successor_key("declared", *words) for words in (("", "n", ""), ("", "n", "1"), ("", "m", "1"), ("a", "n", "1"))
    }
    assert len(keys) == 4
    assert successor_key("declared", "a", "n", "1") in keys
    assert all(len(key) <= 200 for key in keys)


@pytest.mark.parametrize("state", [R, F, JobStatus.FAILED, JobStatus.CANCELED])
def test_an_upgrade_that_goes_on_is_followed_whatever_its_jobs_are(state: JobStatus) -> None:
    job = dataclasses.replace(known(state, OTHER, SUSPENDING), upgrade_id="u1", is_upgrading=True)
    assert make_plan(WANTED, job, Choice()).step is Step.FOLLOW
    with pytest.raises(Conflict, match="goes on"):
        make_plan(WANTED, job, Choice(again=True))


def test_a_job_whose_upgrade_has_renamed_it_is_not_started_beside_its_successor() -> None:
    job = dataclasses.replace(known(F, OTHER, SUSPENDED), upgrade_id="u1", replaced_by="cd" * 16)
    with pytest.raises(Conflict, match="was upgraded: job cdcdcdcd has taken its place") as error:
        make_plan(WANTED, job, Choice())
    assert "--from-savepoint /s/1" in (error.value.hint or "")
    assert make_plan(WANTED, job, Choice("/s/1")).step is Step.START


@pytest.mark.parametrize(
    ("phase", "replaced"),
    [
        (UpgradePhase.DONE, "2" * 32),
        (UpgradePhase.RETURNED, "3" * 32),
        (UpgradePhase.UNCHANGED, ""),
        (UpgradePhase.FAILED, ""),
    ],
)
def test_what_has_taken_the_place_of_an_upgraded_job(phase: UpgradePhase, replaced: str) -> None:
    old, new, back = (JobId(str(number) * 32) for number in (1, 2, 3))
    upgrade = UpgradeInfo(
        upgrade_id="a" * 32, phase=phase, text="", old_job=old, new_job=new, back_job=back, savepoint="/s/1",
        batches=3, within=1, restarts=2, began=1, phase_began=1, ended=1, reason="", canceled_by="",
    )  # fmt: skip
    assert replaced_by(old, upgrade) == replaced
    assert replaced_by(new, upgrade) == replaced_by(old, None) == ""


def test_clients_that_replace_a_job_begin_one_upgrade_and_the_next_one_is_another() -> None:
    job = known(R, OTHER)
    again = dataclasses.replace(job, upgrade_id=upgrade_id("a", "n", job))
    ids = {upgrade_id(*words) for words in (("a", "n", job), ("a", "m", job), ("", "n", job), ("a", "n", again))}
    assert len(ids) == 4
    assert upgrade_id("a", "n", known(R, WANTED)) in ids
    assert all(len(each) == 32 for each in ids)
