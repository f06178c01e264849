"""Whose a working directory is: one process at a time, one task manager for good, nothing of anybody else's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emberkeep.adapters.processes.place_lock import last_holder
from emberkeep.base.clock import SystemClock
from emberkeep.base.cluster_identity import cluster_of_member
from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Conflict, Damaged, EmberkeepError, NewerFormat, Unavailable
from emberkeep.base.files.durable import write_record
from emberkeep.base.files.ownership import OWNER_FILE
from emberkeep.base.ids import InstanceId
from emberkeep.base.processes.process_identity import own_identity
from emberkeep.daemons.records.agent_files import AgentLife, write_agent_life
from emberkeep.daemons.taskmanager.working_place import WorkingPlace, held_working_place

HOST = "taskmanager.host"
ID = "taskmanager.resource-id"


@contextmanager
def standing(root: Path, cluster: str = "c", **settings: str) -> Iterator[WorkingPlace]:
    texts = {"process.taskmanager.working-dir": str(root), HOST: "10.0.0.1"}
    texts |= {{"host": HOST, "id": ID}[name]: text for name, text in settings.items()}
    configuration = Configuration().with_texts(texts, "the test")
    with held_working_place(configuration, StateLayout(root.parent, configuration), cluster, SystemClock()) as place:
        yield place


def contents(root: Path) -> dict[str, bytes]:
    """All files but the lock, which says who looked last."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "lock")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.mark.req("SAFE-17")
def test_the_id_stays_with_the_directory_when_the_address_changes(tmp_path: Path) -> None:
    with standing(tmp_path / "w", host="10.0.0.1") as first:
        assert first.task_manager == "tm-10.0.0.1"
    with standing(tmp_path / "w", host="10.0.0.2") as second:
        assert second.task_manager == "tm-10.0.0.1"
        assert second.owner == first.owner
    with standing(tmp_path / "w", host="10.0.0.3", id="tm-10.0.0.1") as third:
        assert third.owner == first.owner


def test_an_ipv6_address_makes_an_id_that_is_valid_everywhere(tmp_path: Path) -> None:
    with standing(tmp_path / "w", host="fd00::7") as place:
        assert place.task_manager == "tm-fd00--7"


@pytest.mark.req("SAFE-4", "SAFE-17")
def test_another_id_on_a_directory_with_one_is_refused_with_both(tmp_path: Path) -> None:
    with standing(tmp_path / "w", id="one"):
        (tmp_path / "w" / "jobs").mkdir()
    before = contents(tmp_path / "w")
    with (
        pytest.raises(Conflict, match=r"working directory of task manager one; .* is other"),
        standing(tmp_path / "w", id="other"),
    ):
        pass
    assert contents(tmp_path / "w") == before


@pytest.mark.req("SAFE-4")
def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with standing(tmp_path / "w", "first"):
        pass
    before = contents(tmp_path / "w")
    with pytest.raises(Conflict, match=r"cluster 'first'.* not .*cluster 'second'"), standing(tmp_path / "w", "second"):
        pass
    assert contents(tmp_path / "w") == before


@pytest.mark.req("SAFE-4")
@pytest.mark.parametrize("name", ["letters.txt", "jobs/1/results.csv", "state/copies/mine", "agent.record"])
def test_data_of_nobody_known_is_refused_and_stays(tmp_path: Path, name: str) -> None:
    path = tmp_path / "w" / name
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with (
        pytest.raises(Conflict, match=r"not the working directory.*process\.taskmanager\.working-dir"),
        standing(tmp_path / "w"),
    ):
        pass
    assert contents(tmp_path / "w") == {name: b"mine"}


@pytest.mark.req("SAFE-4", "SAFE-14")
@pytest.mark.parametrize("record", ["agent", "slots"])
def test_what_the_release_before_has_left_is_taken_over(tmp_path: Path, record: str) -> None:
    root = tmp_path / "w"
    (root / "jobs").mkdir(parents=True)
    (root / "jobs" / "kept").touch()
    (root / "something of the user's").touch()
    if record == "agent":
        life = AgentLife(instance=InstanceId("life"), process=own_identity(), port=1)
        write_agent_life(root / "agent.record", life)
    else:
        write_record(root / "slots.record", "task-manager-slots", 1, b"{}")
    before = contents(root)
    with standing(root) as place:
        assert place.task_manager == "tm-10.0.0.1"
    after = contents(root)
    del after[OWNER_FILE]
    assert after == before
    with standing(root, host="10.0.0.2") as again:
        assert again.owner == place.owner


@pytest.mark.req("SAFE-4")
@pytest.mark.parametrize(
    ("data", "error"),
    [(b"torn", Damaged), (b"emberkeep-record ownership 9 2 63a1f1b0\n{}", (NewerFormat, Damaged)), (None, Unavailable)],
    ids=["damaged", "newer", "unreadable"],
)
def test_a_record_that_cannot_be_used_is_no_missing_record(
    tmp_path: Path, data: bytes | None, error: type[EmberkeepError]
) -> None:
    root = tmp_path / "w"
    root.mkdir()
    if data is None:
        (root / OWNER_FILE).symlink_to(root / OWNER_FILE)  # reading it is an error, also for root
    else:
        (root / OWNER_FILE).write_bytes(data)
    with pytest.raises(error), standing(root):
        pass
    assert sorted(path.name for path in root.iterdir()) == [OWNER_FILE, "lock"]


@pytest.mark.req("SAFE-16")
@pytest.mark.parametrize("names_itself", [True, False], ids=["this release", "the release before"])
def test_a_second_process_hears_who_is_there_and_changes_nothing(tmp_path: Path, names_itself: bool) -> None:
    root = tmp_path / "w"
    with standing(root, host="10.0.0.1"):
        if not names_itself:
            (root / "lock").write_text("")
            life = AgentLife(instance=InstanceId("life"), process=own_identity(), port=1)
            write_agent_life(root / "agent.record", life)
        before = contents(root)
        who = rf"task manager tm-10.0.0.1: pid {os.getpid()} on \S+" if names_itself else rf"pid {os.getpid()}"
        with pytest.raises(Conflict, match=f"{root} is in use by .*{who}"), standing(root, host="10.0.0.2"):
            pass
        assert contents(root) == before
    with standing(root):
        holder = last_holder(root / "lock")
        assert holder is not None
        assert holder.process == own_identity()


@pytest.mark.req("SAFE-4")
def test_members_of_a_cluster_have_its_name_wherever_they_stand() -> None:
    embedded = Configuration()
    assert cluster_of_member(embedded, "secret") == cluster_of_member(embedded, "secret")
    assert cluster_of_member(embedded, "secret") != cluster_of_member(embedded, "another")
    named = {"high-availability.type": "zookeeper", "high-availability.cluster-id": "blue"}
    assert cluster_of_member(Configuration().with_texts(named, "the test"), "secret") == "blue"
