"""An archive cannot use more memory or disk than its limits, leads nowhere else, and leaves nothing when refused."""

from __future__ import annotations

import hashlib
import os
import tarfile
import threading
import tracemalloc
from pathlib import Path

import pytest

from emberkeep.base.errors import Fatal
from emberkeep.taskmanager.libraries.archives import UnpackedArchives
from emberkeep.taskmanager.libraries.unpack_process import unpack_apart
from emberkeep.taskmanager.libraries.unpacking import UnpackLimits, unpack
from tests.unit.security.hostile_archives import HOSTILE, LONG, MIB, extended_header, tar_of
from tests.unit.taskmanager.libraries.archives import regular, tar

pytestmark = pytest.mark.req("SEC-8")

LIMITS = UnpackLimits(members=300, size=16 * MIB, memory=48 * MIB)


@pytest.mark.anyio
@pytest.mark.parametrize("case", HOSTILE)
async def test_it_is_refused_with_the_reason_and_leaves_nothing(tmp_path: Path, case: str) -> None:
    hostile = HOSTILE[case]
    (tmp_path / "blob").write_bytes(content := hostile.content())
    archives = UnpackedArchives(tmp_path / "unpacked", LIMITS)
    await archives.start()

    with pytest.raises(Fatal, match=hostile.reason) as refused:
        await archives.use(hashlib.sha256(content).hexdigest(), tmp_path / "blob", hostile.file, "task")

    assert hostile.file in refused.value.message
    assert len(refused.value.message) < 700
    assert refused.value.message.isprintable()
    assert list((tmp_path / "unpacked").iterdir()) == []
    assert {path.name for path in tmp_path.iterdir()} == {"blob", "unpacked"}


@pytest.mark.parametrize("case", ["GNU long name", "GNU long link", "PAX header", "PAX global header", "zip link"])
def test_what_describes_a_member_is_not_read_whole(tmp_path: Path, case: str) -> None:
    hostile = HOSTILE[case]
    (tmp_path / "blob").write_bytes(hostile.content())
    tracemalloc.start()
    try:
        with pytest.raises(Fatal):
            unpack(tmp_path / "blob", hostile.file, tmp_path / "content", UnpackLimits(), lambda: False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < LONG / 4


def test_many_members_take_no_more_memory_than_few(tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(tar(*(regular(f"d/{n}") for n in range(1000)), mode="w"))
    tracemalloc.start()
    try:
        unpack(tmp_path / "blob", "a.tar", tmp_path / "content", UnpackLimits(), lambda: False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1.25 * MIB


def test_an_archive_in_an_archive_is_a_file(tmp_path: Path) -> None:
    inner = tar(regular("../evil", b"x"))
    (tmp_path / "blob").write_bytes(tar(regular("inner.tgz", inner)))

    unpack_apart(tmp_path / "blob", "a.tgz", tmp_path / "content", LIMITS, threading.Event())

    assert [path.name for path in (tmp_path / "content").iterdir()] == ["inner.tgz"]
    assert (tmp_path / "content" / "inner.tgz").read_bytes() == inner


def test_what_python_prints_as_it_starts_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('welcome')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "blob").write_bytes(tar(regular("a", b"x")))
    unpack_apart(tmp_path / "blob", "a.tgz", tmp_path / "content", LIMITS, threading.Event())
    assert (tmp_path / "content" / "a").read_bytes() == b"x"

    (tmp_path / "blob").write_bytes(tar(regular("../evil", b"x")))
    with pytest.raises(Fatal, match="which is outside the archive"):
        unpack_apart(tmp_path / "blob", "a.tgz", tmp_path / "again", LIMITS, threading.Event())

    (tmp_path / "sitecustomize.py").write_text("import os; print('{}', flush=True); os._exit(3)")
    with pytest.raises(Fatal, match=r"cannot unpack a\.tgz: its process ended with 3"):
        unpack_apart(tmp_path / "blob", "a.tgz", tmp_path / "once more", LIMITS, threading.Event())


def test_processor_time_is_bounded(tmp_path: Path) -> None:
    """tarfile needs seconds for each of these headers, although they are no longer than is allowed."""
    slow = b"9" * 60_000 + b" "
    (tmp_path / "blob").write_bytes(tar_of(*[extended_header(tarfile.XHDTYPE, slow)] * 9))

    with pytest.raises(Fatal, match=r"a\.tgz takes more than 1 s of processor time"):
        unpack_apart(tmp_path / "blob", "a.tgz", tmp_path / "content", UnpackLimits(cpu=1), threading.Event())


def test_it_ends_with_the_task_manager(tmp_path: Path) -> None:
    """A pipe blocks the process for ever, unless it is told to end."""
    os.mkfifo(tmp_path / "pipe")
    stop = threading.Event()
    stop.set()

    with pytest.raises(Fatal, match="was not unpacked: the task manager ends"):
        unpack_apart(tmp_path / "pipe", "a.tgz", tmp_path / "content", LIMITS, stop)
