"""Start a process as the leader of its own session, with a record on disk before and after.

The name of the record's file is the marker that the process has in its environment. After a crash, the file name alone
therefore leads to the process, even if no pid was written yet or the record is damaged. A process that gets another
name later keeps its marker.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emberkeep.adapters.cgroups.port import Group, Share
from emberkeep.adapters.cgroups.registry import ProcessGroups
from emberkeep.adapters.processes.entering import entering
from emberkeep.adapters.processes.gate import open_gate, require_program
from emberkeep.adapters.processes.table import MARKER_VARIABLE
from emberkeep.base.compatible import Compatible
from emberkeep.base.decoding import from_json
from emberkeep.base.errors import Fatal, InvalidInput, RetryLater
from emberkeep.base.files.durable import read_record, sync_directory, write_record
from emberkeep.base.files.errors import shortage
from emberkeep.base.files.hostile import open_to_append
from emberkeep.base.files.operations import SYSTEM_FILES, FileOps
from emberkeep.base.processes.os_user import OsUser, credentials_of
from emberkeep.base.processes.process_identity import ProcessIdentity, boot_id, read_stat
from emberkeep.base.processes.waited_for import REAPING, WAITED_FOR

RECORD_KIND, RECORD_VERSION = "process", 1
RECORD_SUFFIX = ".process"
_GROUP_HINT = "see whether its service manager has taken the task manager's control group back; taskmanager.cgroups"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}")


@dataclass(frozen=True)
class StartRequest:
    """A process to start.

    ``environ`` is the whole environment. Output is appended to ``stdout`` and ``stderr``, which may be the same file.
    ``user``: the user who runs it and owns its output; None: the user of this process. ``stdin``: an open file
    descriptor; None: the process has no input. ``share``: of its control group, if it gets one; None: the least.
    ``enter``: the directory in which it runs, if that may be on a mount that does not answer; it is started in
    ``directory`` and enters the other one by itself.
    """

    name: str  # unique among the processes of a supervisor; letters, digits, '.', '_' and '-'
    argv: Sequence[str]
    environ: Mapping[str, str]
    directory: Path
    stdout: Path
    stderr: Path
    user: OsUser | None = None
    stdin: int | None = None
    share: Share | None = None
    enter: Path | None = None


class ProcessRecord(Compatible, frozen=True, kw_only=True):
    """The record of a process on disk. ``identity`` is None until the process has started."""

    name: str
    identity: ProcessIdentity | None


def new_marker(name: str) -> str:
    """Return a marker that no other process has ever had. Raises InvalidInput if ``name`` is not a process name."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not a process name", hint="use letters, digits, '.', '_' and '-', 160 at most")
    return f"{name}@{secrets.token_hex(8)}"


def record_path(directory: Path, marker: str) -> Path:
    return directory / f"{marker}{RECORD_SUFFIX}"


def write_process_record(path: Path, record: ProcessRecord, files: FileOps = SYSTEM_FILES) -> None:
    """Write a process's record. Raises Fatal."""
    write_record(path, RECORD_KIND, RECORD_VERSION, msgspec.json.encode(record), files=files)


def read_process_record(path: Path) -> ProcessRecord:
    """Read a process's record. Raises Absent, Unavailable, Fatal (damaged, of another version)."""
    try:
        return from_json(read_record(path, RECORD_KIND, RECORD_VERSION), ProcessRecord)
    except msgspec.DecodeError as error:
        raise Fatal(f"{path}: {error}") from error


def remove_record(path: Path, files: FileOps = SYSTEM_FILES) -> None:
    """Remove a record. Raises OSError. A record that stays is harmless: its process is recognised as ended."""
    with contextlib.suppress(FileNotFoundError):
        files.unlink(str(path))
    sync_directory(path.parent, files)


def launch(request: StartRequest, directory: Path, marker: str, groups: ProcessGroups) -> ProcessIdentity:
    """Write a record without an identity, then start the process, in a control group of its own if ``groups`` says so.

    Blocks. If it raises Fatal, or RetryLater for what may pass, it leaves nothing behind.
    """
    path = record_path(directory, marker)
    write_process_record(path, ProcessRecord(name=request.name, identity=None))
    try:
        group = _make_group(request, marker, groups)
        with _output(request.stdout, request.user) as stdout, _output(request.stderr, request.user) as stderr, REAPING:
            pid = _spawn(request, marker, (stdout, stderr), group)
            identity = _identified(pid, request)
            WAITED_FOR.add(pid)
            return identity
    except BaseException:
        groups.end(marker)
        with contextlib.suppress(OSError):  # a record that stays is harmless, and the first error matters more
            remove_record(path)
        raise


def _identified(pid: int, request: StartRequest) -> ProcessIdentity:
    """Return the identity of a process that was just started. Raises RetryLater, Fatal: then the process is ended."""
    try:
        stat = read_stat(pid)
        assert stat is not None, "a child keeps its pid until it is reaped"  # noqa: S101
        return ProcessIdentity(pid=pid, start_ticks=stat.start_ticks, boot_id=boot_id())
    except BaseException as error:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        if isinstance(error, OSError):
            raise _refusal(f"cannot look at {request.name}, which was just started: {error}", error, None) from error
        raise


def _make_group(request: StartRequest, marker: str, groups: ProcessGroups) -> Group | None:
    if not groups.are_made:
        return None
    try:
        return groups.make(marker, request.name, request.share)
    except OSError as error:
        raise _refusal(f"cannot make a control group for {request.name}: {error}", error, _GROUP_HINT) from None


def _refusal(problem: str, error: OSError, hint: str | None) -> Fatal | RetryLater:
    """Return the error of a start. ``hint``: what helps if the reason does not pass."""
    if passing := shortage(error):
        return RetryLater(problem, hint=passing)
    return Fatal(problem, hint=hint)


def _spawn(request: StartRequest, marker: str, output: tuple[int, int], group: Group | None) -> int:
    environ = {**request.environ, MARKER_VARIABLE: marker}
    argv = list(request.argv) if request.enter is None else entering(request.enter, request.argv)
    with contextlib.ExitStack() as stack:
        try:
            gate = None if group is None else stack.enter_context(open_gate())
            if gate is not None or request.enter is not None:
                require_program(request.argv, environ, request.directory)
            process = subprocess.Popen(
                argv if gate is None else gate.argv(argv),
                env=environ,
                cwd=request.directory,
                stdin=subprocess.DEVNULL if request.stdin is None else request.stdin,
                stdout=output[0],
                stderr=output[1],
                start_new_session=True,
                pass_fds=() if gate is None else (gate.read_end,),
                **credentials_of(request.user),
            )
        except (OSError, ValueError) as error:
            raise _start_error(error, request) from None
        if gate is not None and group is not None:
            try:
                group.join(process.pid)
            except OSError as error:
                gate.close()
                process.wait()
                raise _refusal(f"{request.name} cannot join its control group: {error}", error, _GROUP_HINT) from None
            gate.open()
    # The supervisor reaps the process. A return code keeps Popen from doing so when the object is collected.
    process.returncode = 0
    return process.pid


@contextlib.contextmanager
def _output(path: Path, user: OsUser | None) -> Iterator[int]:
    try:
        if user is None:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        else:
            descriptor = open_to_append(path, user)
    except OSError as error:
        problem = f"cannot open {path} for output: {error.strerror}"
        raise _refusal(problem, error, "check free space and permissions") from None
    try:
        yield descriptor
    finally:
        os.close(descriptor)


_REASONS: dict[int, tuple[str, str | None]] = {
    errno.ENOENT: ("the program does not exist", "check the path, and the interpreter in its first line"),
    errno.EACCES: ("no permission to run it", "check that it is executable and its folders can be entered"),
    errno.ENOEXEC: ("the file is not a program for this machine", "check its format and first line"),
    errno.E2BIG: ("the arguments and the environment are too large", "pass large values in files"),
}
_PASSING: dict[int, tuple[str, str]] = {  # with what is used up now and may be free again soon
    errno.EAGAIN: ("the limit of processes is reached", "raise `ulimit -u` or the container's pids limit"),
    errno.ENOMEM: ("there is not enough memory", "free memory, or lower taskmanager.memory.process.size"),
    errno.EMFILE: ("too many files are open", "raise `ulimit -n`"),
    errno.ENFILE: ("too many files are open on this machine", "raise fs.file-max"),
}


def _start_error(error: OSError | ValueError, request: StartRequest) -> Fatal | RetryLater:
    program = request.argv[0] if request.argv else "(nothing)"
    if isinstance(error, ValueError):
        return Fatal(f"cannot start {program}: {error}", hint="arguments and environment must hold no NUL characters")
    if str(error.filename) == str(request.directory):
        return Fatal(f"cannot start {program} in {request.directory}: {error.strerror}", hint="check that directory")
    if passing := _PASSING.get(error.errno or 0):
        return RetryLater(f"cannot start {program}: {passing[0]}", hint=passing[1])
    reason, hint = _REASONS.get(error.errno or 0, (error.strerror or str(error), None))
    return Fatal(f"cannot start {program}: {reason}", hint=hint)
