"""Users for the processes of jobs: which settings are refused, and what hostile files in their directories can do."""

from __future__ import annotations

import os
import platform
import stat
from pathlib import Path

import msgspec
import pytest

from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.processes.log_retention import prune_once
from emberkeep.adapters.processes.start import StartRequest, launch, new_marker
from emberkeep.adapters.shared_storage.job_data import _remove_tree as remove_checkpoints
from emberkeep.base.configuration.layout import StateLayout, WorkingDirectory
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Absent, Damaged, Fatal, InvalidInput, NewerFormat
from emberkeep.base.files.durable import write_record
from emberkeep.base.files.hostile import hand_over, open_to_append, open_to_read, read_bytes, remove_tree
from emberkeep.base.files.log_tail import last_lines, private_output
from emberkeep.base.ids import AllocationId, ExecutorId, JobId
from emberkeep.base.processes.os_user import OsUser, find_user
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, OUTCOME_KIND, OUTCOME_VERSION, write_outcome
from emberkeep.daemons.records.record_versions import RecordVersions, write_versions
from emberkeep.daemons.taskmanager.newer_records import refuse_newer_records
from emberkeep.daemons.taskmanager.process_places import ProcessPlaces
from emberkeep.daemons.taskmanager.run_as import (
    JobUsers,
    job_users,
    make_shared,
    open_storage,
    open_working_directory,
    own_checkpoints,
)
from emberkeep.identities.attempts import AttemptCredentials
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.rest.ports import LogQuery
from emberkeep.rest.serving.log_catalogue import TaskManagerLogs
from emberkeep.rest.serving.log_reader import LogReader
from emberkeep.taskmanager.ports import DriverKey, ExecutorKey
from tests.support.kernel.children import reap

pytestmark = pytest.mark.req("SEC-13")

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users: run this test as root")
ANA = OsUser("ana", 60001, 60001, (60001,), "/nonexistent", "/bin/sh")
BEN = OsUser("ben", 60002, 60002, (60002,), "/nonexistent", "/bin/sh")
JOB = JobId("a" * 32)
DRIVER = DriverKey(job_id=JOB, attempt=1)
EXECUTOR = ExecutorKey(job_id=JOB, attempt=1, allocation_id=AllocationId("b" * 32), executor_id=ExecutorId("1"))


def configured(run_as: str, **options: str) -> Configuration:
    others = {"state.backend.local-recovery": "false", "security.encryption": "tls"}
    texts = {**others, **{key.replace("__", "."): text for key, text in options.items()}, "security.run-as": run_as}
    return Configuration().with_texts(texts, "the test")


# --- settings ---------------------------------------------------------------------------------------------------------


def test_no_users_are_the_default() -> None:
    assert job_users(Configuration()) == {}
    assert JobUsers({}, "").of("team-a") is None


def test_a_task_manager_that_is_not_root_refuses_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Fatal, match="does not run as root"):
        job_users(configured("nobody"))


@pytest.mark.parametrize(
    ("run_as", "reason"),
    [
        ("no-such-user-here", "there is no user 'no-such-user-here'"),
        ("root", "'root' is root"),
        ("team-a=root", "'root' is root"),
        ("team-a=nobody, team-a=nobody", "names two users for 'team-a'"),
        ("team-a=", "neither NAMESPACE=USER nor USER"),
        ("=nobody", "neither NAMESPACE=USER nor USER"),
        ("nobody,", "neither NAMESPACE=USER nor USER"),
    ],
)
def test_a_wrong_list_of_users_is_refused(monkeypatch: pytest.MonkeyPatch, run_as: str, reason: str) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InvalidInput, match=reason) as caught:
        job_users(configured(run_as))
    assert caught.value.field == "security.run-as"


def test_other_users_need_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(InvalidInput, match=r"needs security\.encryption: tls"):
        job_users(configured("nobody", security__encryption="none"))


def test_local_recovery_needs_threads_that_can_act_as_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert job_users(configured("nobody", **{"state__backend__local-recovery": "true"}))
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    assert job_users(configured("nobody"))
    with pytest.raises(Fatal, match="cannot act as other users on Linux on pdp11"):
        job_users(configured("nobody", **{"state__backend__local-recovery": "true"}))


def test_each_namespace_has_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    nobody = find_user("nobody", "the test")
    assert job_users(configured("team-a=nobody, *=nobody")) == {"team-a": nobody, "*": nobody}
    assert job_users(configured("nobody")) == {"*": nobody}
    users = JobUsers({"team-a": ANA, "*": BEN}, "")
    assert (users.of("team-a"), users.of("team-b"), users.of("")) == (ANA, BEN, BEN)
    with pytest.raises(Fatal, match="names no user for namespace 'team-b'"):
        JobUsers({"team-a": ANA}, "").of("team-b")


def test_the_namespace_of_an_executor_is_proven_and_not_claimed() -> None:
    users = JobUsers({"team-a": ANA, "team-b": BEN}, "token")
    claim = AttemptCredentials("token").namespace_claim(JOB, "team-a")
    assert users.of_claim(JOB, claim) is ANA
    forged = [claim.replace("team-a", "team-b"), "", "team-b", "team-b.", f"{claim}é"]
    forged.append(AttemptCredentials("another token").namespace_claim(JOB, "team-b"))
    forged.append(AttemptCredentials("token").namespace_claim(JobId("c" * 32), "team-b"))
    for text in forged:
        with pytest.raises(Fatal, match="does not prove the namespace"):
            users.of_claim(JOB, text)


@as_root
def test_a_user_who_cannot_reach_the_working_directory_is_named_at_the_start(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "state" / "tm").mkdir(parents=True)
    layout = StateLayout(closed / "state", Configuration())
    with pytest.raises(Fatal, match=r"security\.run-as: .*ana"):
        open_working_directory(layout, WorkingDirectory(closed / "state" / "tm"), (ANA,))


# --- owners -----------------------------------------------------------------------------------------------------------


def seen(path: Path) -> tuple[int, str]:
    status = path.lstat()
    return status.st_uid, oct(stat.S_IMODE(status.st_mode))


@as_root
def test_a_process_owns_its_directory_and_passes_through_those_above(tmp_path: Path) -> None:
    root = WorkingDirectory(tmp_path / "tm")
    root.root.mkdir()
    places = ProcessPlaces(root)
    for key in (DRIVER, EXECUTOR):
        places.begin(key, ANA)
        directory = places.directory(key)
        assert seen(directory) == (0, "0o700")
        (directory / "secret").write_text("text")
        (directory / "link").symlink_to("/etc/passwd")
        hand_over(directory, ANA)
        assert [seen(path)[0] for path in (directory, directory / "secret", directory / "link")] == [ANA.uid] * 3
        assert seen(Path("/etc/passwd"))[0] == 0
    assert seen(root.attempt_logs(JOB, 1)) == (ANA.uid, "0o700")
    shared = (root.jobs, root.job(JOB), root.attempt(JOB, 1), root.logs, root.logs / "jobs", root.logs / "jobs" / JOB)
    assert {seen(path) for path in shared} == {(0, "0o711")}


@as_root
def test_a_process_runs_as_its_user_with_no_group_of_root(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    logs = tmp_path / "logs"
    logs.mkdir(mode=0o700)
    os.chown(logs, ANA.uid, ANA.gid)
    words = "id -u; id -G; umask; cat /proc/self/status | grep CapEff"
    out, err = logs / "out", logs / "err"
    request = StartRequest("a", ("/bin/sh", "-c", words), {"PATH": os.environ["PATH"]}, Path("/"), out, err, ANA)
    (tmp_path / "records").mkdir()
    identity = launch(request, tmp_path / "records", new_marker("a"), ProcessGroups())
    reap(identity.pid)
    assert out.read_text().split() == ["60001", "60001", "0077", "CapEff:", "0" * 16]
    assert seen(out) == (ANA.uid, "0o600")


@as_root
def test_checkpoints_of_a_job_belong_to_its_user_and_to_no_other(tmp_path: Path) -> None:
    layout = StateLayout(tmp_path / "state", Configuration())
    own_checkpoints(layout.checkpoints / JOB, ANA, may_create=True)  # the storage is not mounted: the driver says so
    assert not layout.checkpoints.exists()
    layout.checkpoints.mkdir(parents=True)
    open_storage(layout)
    assert layout.checkpoints.stat().st_mode & 0o007 == 0o001
    assert seen(layout.savepoints)[1] == "0o1777"
    own_checkpoints(layout.checkpoints / JOB, ANA, may_create=False)
    assert not (layout.checkpoints / JOB).exists()
    for _ in range(2):
        own_checkpoints(layout.checkpoints / JOB, ANA, may_create=True)
        assert seen(layout.checkpoints / JOB) == (ANA.uid, "0o700")
    with pytest.raises(Fatal, match="belong to user id 60001, and the job runs as ben"):
        own_checkpoints(layout.checkpoints / JOB, BEN, may_create=True)


# --- hostile files ----------------------------------------------------------------------------------------------------


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("hunter2\n")
    path.chmod(0o600)
    return path


def plant(kind: str, path: Path, secret: Path) -> None:
    """Put at ``path`` what a job could put into a directory of its own."""
    path.unlink(missing_ok=True)
    if kind == "link":
        path.symlink_to(secret)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.hardlink_to(secret)


PLANTED = ["link", "pipe", "directory", pytest.param("hard link", marks=as_root)]


@pytest.mark.parametrize("kind", PLANTED)
def test_nothing_planted_is_read(tmp_path: Path, secret: Path, kind: str) -> None:
    directory = tmp_path / "own"
    directory.mkdir()
    if os.geteuid() == 0:
        os.chown(directory, ANA.uid, ANA.gid)
    plant(kind, directory / "file", secret)
    with pytest.raises(OSError, match=r"not a regular|not belong|symbolic"):
        open_to_read(directory / "file")
    with pytest.raises(Damaged if os.geteuid() == 0 else OSError):
        read_bytes(directory / "file")
    assert last_lines(directory / "file") == ""


@pytest.mark.parametrize("kind", PLANTED)
async def test_a_planted_log_is_not_served(tmp_path: Path, secret: Path, kind: str) -> None:
    root = WorkingDirectory(tmp_path / "tm")
    logs = root.attempt_logs(JOB, 1)
    logs.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(logs, ANA.uid, ANA.gid)
    plant(kind, logs / "driver.stdout", secret)
    reader = LogReader(TaskManagerLogs(root, lambda *_: False), lambda: 0.0)
    with pytest.raises(Absent):
        await reader.read(f"{JOB}-1-driver.stdout", LogQuery(job_id=JOB, offset=0, limit=100, wait=0.0))


@as_root
@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_outcome_is_none(tmp_path: Path, secret: Path, kind: str) -> None:
    places = ProcessPlaces(WorkingDirectory(tmp_path / "tm"))
    directory = places.directory(DRIVER)
    directory.mkdir(parents=True)
    if os.geteuid() == 0:
        os.chown(directory, ANA.uid, ANA.gid)
    plant(kind, directory / OUTCOME_FILE, secret)
    assert places.outcome(DRIVER, None).kind is FailureKind.LOST


@pytest.fixture
def own_place(tmp_path: Path) -> ProcessPlaces:
    """The places of a task manager whose job's driver, of the user ana, has ended."""
    root = WorkingDirectory(tmp_path / "tm")
    root.root.mkdir()
    places = ProcessPlaces(root)
    places.begin(DRIVER, ANA)
    hand_over(places.directory(DRIVER), ANA)
    return places


def claim_newer(path: Path, kind: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_record(path, kind, 99, b"{}")
    for each in (path, path.parent):
        os.chown(each, ANA.uid, ANA.gid)


@as_root
@pytest.mark.req("SEC-18")
@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("driver/outcome.record", "driver-outcome"),
        ("driver/artefacts.record", "process-artefacts"),
        ("driver/slots.record", "task-manager-slots"),
        ("executors/1-x/artefacts.record", "process-artefacts"),
    ],
)
def test_a_job_that_claims_a_newer_release_does_not_stop_its_task_manager(
    own_place: ProcessPlaces, tmp_path: Path, place: str, kind: str
) -> None:
    root = WorkingDirectory(tmp_path / "tm")
    claim_newer(root.attempt(JOB, 1) / place, kind)
    refuse_newer_records(root)
    assert own_place.outcome(DRIVER, None).kind is FailureKind.LOST
    assert own_place.written_outcomes() == {}


@as_root
def test_an_outcome_of_a_newer_release_that_has_started_the_driver_is_waited_for(
    own_place: ProcessPlaces, tmp_path: Path
) -> None:
    root = WorkingDirectory(tmp_path / "tm")
    claim_newer(own_place.directory(DRIVER) / OUTCOME_FILE, "driver-outcome")
    write_versions(root.attempt(JOB, 1), RecordVersions(outcome=99, artefacts=1))
    write_versions(root.attempt(JOB, 1))  # an executor that this release starts
    with pytest.raises(NewerFormat, match="version 99"):
        own_place.outcome(DRIVER, None)
    with pytest.raises(NewerFormat, match="cannot start"):
        refuse_newer_records(root)


@pytest.mark.req("SEC-8")
def test_an_outcome_of_any_size_uses_little_memory(tmp_path: Path) -> None:
    places = ProcessPlaces(WorkingDirectory(tmp_path / "tm"))
    path = places.directory(DRIVER) / OUTCOME_FILE
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(2**40)
    assert places.outcome(DRIVER, None).kind is FailureKind.LOST
    outcome = AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message="m" * 2**24, traceback="t" * 2**24)
    write_record(path, OUTCOME_KIND, OUTCOME_VERSION, msgspec.json.encode(outcome))
    read = places.outcome(DRIVER, 1)
    assert (read.kind, len(read.message), len(read.traceback)) == (FailureKind.SCRIPT, 2**20, 2**20)
    write_outcome(path, outcome)
    assert path.stat().st_size < 2**22


@as_root
@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "hard link"])
def test_no_output_is_written_to_what_is_planted(tmp_path: Path, secret: Path, kind: str) -> None:
    plant(kind, tmp_path / "executor-1.stdout", secret)
    with pytest.raises(OSError, match=r".") as caught:
        os.close(open_to_append(tmp_path / "executor-1.stdout", ANA))
    assert caught.value.errno
    assert (secret.read_text(), seen(secret)) == ("hunter2\n", (0, "0o600"))


@as_root
def test_output_is_appended_to_a_file_of_the_user(tmp_path: Path) -> None:
    for _ in range(2):
        descriptor = open_to_append(tmp_path / "out", ANA)
        os.write(descriptor, b"x")
        os.close(descriptor)
    assert (tmp_path / "out").read_text() == "xx"
    assert seen(tmp_path / "out") == (ANA.uid, "0o600")


def test_deletion_follows_no_link_and_leaves_nothing(tmp_path: Path, secret: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (kept / "inner" / "file").write_text("text")
    tree = tmp_path / "jobs" / "job"
    (tree / "a" / "b").mkdir(parents=True)
    (tree / "to-kept").symlink_to(kept)
    (tree / "a" / "b" / "to-inner").symlink_to(kept / "inner")
    (tree / "a" / "hard").hardlink_to(secret)
    os.mkfifo(tree / "a" / "pipe")
    (tree / "a" / "b" / "closed").mkdir(mode=0o500)
    (tree / "a" / "b").chmod(0o500)
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "inner" / "file").read_text() == "text"
    assert secret.read_text() == "hunter2\n"
    (tmp_path / "jobs" / "linked").symlink_to(kept)
    remove_tree(tmp_path / "jobs" / "linked")
    assert (kept / "inner" / "file").exists()
    assert seen(kept)[1] == "0o755"


def test_a_tree_that_is_deeper_than_any_path_is_deleted(tmp_path: Path) -> None:
    """Python's own deletion ends with a RecursionError there, or without descriptors."""
    top = tmp_path / "jobs" / "job"
    make_deep(top)
    assert prune_once(tmp_path / "jobs", 0, 3600.0, frozenset()) == []  # the newest stays
    remove_tree(top)
    assert not top.exists()
    make_deep(tmp_path / "checkpoints")
    remove_checkpoints(tmp_path / "checkpoints")
    assert not (tmp_path / "checkpoints").exists()


def make_deep(top: Path) -> None:
    top.mkdir(parents=True)
    current = os.open(top, os.O_RDONLY)
    for _ in range(2100):  # names of two characters each, of which a path has at most 4,096
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    os.close(current)


def test_the_output_of_a_daemon_is_its_users(tmp_path: Path) -> None:
    (tmp_path / "out").touch(mode=0o644)
    private_output(tmp_path / "out").close()
    assert seen(tmp_path / "out")[1] == "0o600"


def test_a_shared_directory_can_be_entered_and_not_listed(tmp_path: Path) -> None:
    make_shared(tmp_path / "a" / "b", tmp_path)
    assert [seen(path)[1] for path in (tmp_path / "a", tmp_path / "a" / "b")] == ["0o711", "0o711"]
