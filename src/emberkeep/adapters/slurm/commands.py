"""Runs Slurm's commands, each for a bounded time and with a bounded output."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from emberkeep.base.errors import Fatal, RetryLater, Unavailable, UnknownOutcome
from emberkeep.base.files.errors import shortage
from emberkeep.base.processes.threads import MORE_PROCESSES

OUTPUT_BYTES = 64 * 1024**2  # of one command: the JSON of about 20,000 jobs
_CHUNK = 64 * 1024
_WORDS = 300  # characters of an error message
# What the commands print if slurmctld is away. All else is an answer.
_AWAY = (
    "unable to contact slurm controller",
    "socket timed out",
    "connection refused",
    "connection reset",
    "connection timed out",
    "zero bytes were transmitted",
    "unexpected message received",
    "slurm_load",
    "slurm backup controller in standby",
    "transport endpoint is not connected",
    "could not establish a configuration source",
    "temporarily unable",
)


class SlurmCommands:
    """Slurm's commands in ``directory``, or on the path if that is "". Each may take ``timeout`` seconds.

    Commands that only read raise Unavailable if there is no answer. Commands that change something raise Unavailable if
    slurmctld was certainly not reached, UnknownOutcome if the command did not end in time, and RetryLater with Slurm's
    words if it refused.
    """

    def __init__(self, directory: str, timeout: float, environ: Mapping[str, str]) -> None:
        self._directory = directory
        self._timeout = timeout
        # Slurm's commands read options from SBATCH_*, SQUEUE_* and others. A JobManager may itself run in a Slurm job.
        prefixes = ("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SCANCEL_")
        self._environment = {
            name: value for name, value in environ.items() if name == "SLURM_CONF" or not name.startswith(prefixes)
        }

    async def read(self, command: str, *arguments: str) -> bytes:
        """Return what the command prints. Raises Unavailable, Fatal (there is no such command)."""
        try:
            code, output, words = await self._run(command, arguments, b"")
        except TimeoutError:
            raise self._away(command, f"no answer within {self._timeout:g} s") from None
        if code:
            raise self._away(command, words or f"exit code {code}")
        return output

    async def change(self, command: str, *arguments: str, script: str = "") -> str:
        """Return what the command prints. Raises RetryLater (refused), Unavailable, UnknownOutcome, Fatal."""
        try:
            code, output, words = await self._run(command, arguments, os.fsencode(script))
        except TimeoutError:
            raise UnknownOutcome(
                f"`{command}` did not end within {self._timeout:g} s",
                hint="check that slurmctld answers (`scontrol ping`)",
            ) from None
        if not code:
            return output.decode("utf-8", "replace")
        if any(sign in words.lower() for sign in _AWAY):
            raise self._away(command, words)
        raise RetryLater(f"Slurm refuses: {words or f'exit code {code} of {command}'}", hint="see `man sbatch`")

    def _away(self, command: str, why: str) -> Unavailable:
        return Unavailable(f"`{command}` failed: {why}", hint="check that slurmctld answers (`scontrol ping`)")

    async def _run(self, command: str, arguments: Sequence[str], script: bytes) -> tuple[int, bytes, str]:
        """Return exit code, output and error message. Raises TimeoutError; by then the command has been killed."""
        program = str(Path(self._directory) / command) if self._directory else command
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        except OSError as error:
            raise _cannot_run(program, error) from error
        try:
            async with asyncio.timeout(self._timeout):
                output, errors = await _talk(process, script)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return process.returncode or 0, output, _in_words(errors)


async def _talk(process: asyncio.subprocess.Process, script: bytes) -> tuple[bytes, bytes]:
    """Give the process its input, and return its output and error output. Raises Unavailable (too much output)."""
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(script)
        await process.stdin.drain()
    process.stdin.close()
    output, errors = await asyncio.gather(_bounded(process.stdout), _bounded(process.stderr))
    await process.wait()
    return output, errors


async def _bounded(stream: asyncio.StreamReader) -> bytes:
    found = bytearray()
    while chunk := await stream.read(_CHUNK):
        found += chunk
        if len(found) > OUTPUT_BYTES:
            raise Unavailable(f"a command of Slurm prints more than {OUTPUT_BYTES // 1024**2} MiB")
    return bytes(found)


def _cannot_run(program: str, error: OSError) -> Fatal | Unavailable:
    hint = shortage(error) or (MORE_PROCESSES if error.errno == errno.EAGAIN else None)
    if hint is not None:
        return Unavailable(f"cannot run {program} now: {error.strerror}", hint=hint)
    return Fatal(
        f"cannot run {program}: {error.strerror}",
        hint="install Slurm's commands on the JobManager's machine, or set resourcemanager.slurm.bin-dir",
    )


def _in_words(errors: bytes) -> str:
    """Return the lines of an error output as one text, without the names of the commands in front of them."""
    lines = errors.decode("utf-8", "replace").splitlines()
    texts = (line.partition(": error: ")[2] or line.partition(": fatal: ")[2] or line for line in lines)
    return "; ".join(dict.fromkeys(" ".join(text.split()) for text in texts if text.strip()))[:_WORDS]
