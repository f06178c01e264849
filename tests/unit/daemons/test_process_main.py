"""A process lives as long as all its services, ends when it is asked to, and says truthfully why."""

from __future__ import annotations

import asyncio
import errno
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest
import structlog

from emberkeep.base.configuration.layout import StateLayout
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.connections import LEAST_DESCRIPTORS, LEAST_ON_NODES
from emberkeep.base.errors import Fatal, InvalidInput
from emberkeep.daemons.process_main import (
    EXIT_CRASHED,
    EXIT_FAILED,
    EXIT_OK,
    EXIT_USAGE,
    ServiceReturned,
    Services,
    run_daemon,
)


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """A daemon configures logging for its whole process; here each test is one."""
    yield
    structlog.reset_defaults()


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def test_a_service_that_returns_ends_the_wait_with_its_name() -> None:
    services = Services()
    services.start("patient", _for_ever())
    services.start("hasty", asyncio.sleep(0))
    with pytest.raises(ServiceReturned, match="hasty"):
        await services.run_until(asyncio.Event())
    await services.cancel()


async def test_a_service_that_fails_ends_the_wait_with_its_error() -> None:
    async def fail() -> None:
        raise Fatal("no more space")

    services = Services()
    services.start("failing", fail())
    with pytest.raises(Fatal, match="no more space"):
        await services.run_until(asyncio.Event())
    await services.cancel()


async def test_a_request_to_stop_leaves_the_services_running_until_they_are_cancelled() -> None:
    services, stop, happened = Services(), asyncio.Event(), []

    async def patient() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            happened.append("ended")

    services.start("patient", patient())
    await asyncio.sleep(0)
    stop.set()
    await services.run_until(stop)
    await asyncio.sleep(0)
    happened.append("returned")
    await services.cancel()
    assert happened == ["returned", "ended"]


@pytest.mark.parametrize(
    ("error", "code"), [(Fatal("disk full", hint="make room"), EXIT_FAILED), (InvalidInput("bad"), EXIT_USAGE)]
)
def test_an_expected_error_is_announced_and_told_in_words(
    error: Exception, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def serve(_configuration: Configuration, _layout: StateLayout, _stop: asyncio.Event) -> None:
        raise error

    assert run_daemon("test", ["--state-dir", str(tmp_path)], serve) == code
    output = capsys.readouterr()
    assert msgspec.json.decode(output.out)["error"] in ("disk full", "bad")
    assert "Traceback" not in output.err


def test_a_bug_is_an_exit_code_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def serve(_configuration: Configuration, _layout: StateLayout, _stop: asyncio.Event) -> None:
        raise ZeroDivisionError("oops")

    assert run_daemon("test", ["--state-dir", str(tmp_path)], serve) == EXIT_CRASHED
    assert "internal error: ZeroDivisionError: oops" in capsys.readouterr().err


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def serve(_configuration: Configuration, _layout: StateLayout, _stop: asyncio.Event) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/etc/secret/ca.pem")  # as from a check that it exists

    assert run_daemon("test", ["--state-dir", str(tmp_path)], serve) == EXIT_CRASHED
    error = capsys.readouterr().err
    assert "emberkeep test: cannot use /etc/secret/ca.pem: Permission denied\n" in error
    assert "internal error" not in error


def test_a_thread_that_dies_ends_the_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = []

    async def serve(_configuration: Configuration, _layout: StateLayout, stop: asyncio.Event) -> None:
        def receive() -> None:
            raise OSError("invalid argument")

        threading.Thread(target=receive, name="receiver").start()
        try:
            await stop.wait()
        finally:
            ended.append("in order")

    assert run_daemon("test", ["--state-dir", str(tmp_path)], serve) == EXIT_CRASHED
    assert ended == ["in order"]
    assert "internal error: OSError: invalid argument" in capsys.readouterr().err


def test_blocking_work_goes_on_while_the_machine_gives_no_further_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    async def serve(_configuration: Configuration, _layout: StateLayout, _stop: asyncio.Event) -> None:
        with monkeypatch.context() as few:
            few.setattr(threading.Thread, "start", refused)
            both = threading.Barrier(2)
            await asyncio.wait_for(asyncio.gather(*(asyncio.to_thread(both.wait) for _ in range(2))), 10)

    assert run_daemon("test", ["--state-dir", str(tmp_path)], serve) == EXIT_OK


def test_a_process_that_may_have_no_threads_ends_at_once_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    async def serve(*_: object) -> None:
        raise AssertionError("it must not serve")

    with monkeypatch.context() as few:
        few.setattr(threading.Thread, "start", refused)
        assert run_daemon("test", ["--state-dir", str(tmp_path)], serve) == EXIT_FAILED
    assert "ulimit -u" in capsys.readouterr().err


def test_a_thread_that_a_file_system_keeps_for_ever_does_not_keep_the_process(tmp_path: Path) -> None:
    program = """
import asyncio, os, sys
from concurrent.futures import ThreadPoolExecutor
from emberkeep.daemons import process_main

async def serve(configuration, layout, stop):
    asyncio.get_running_loop().run_in_executor(None, os.read, os.pipe()[0], 1)
    ThreadPoolExecutor(1).submit(os.read, os.pipe()[0], 1)

process_main._LAST_SECONDS = 0.1
process_main.leave(process_main.run_daemon("test", ["--state-dir", sys.argv[1]], serve))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(tmp_path)], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == EXIT_OK, done.stderr
    assert b"a file system does not answer" in done.stderr


def test_sigterm_is_a_request_to_stop(tmp_path: Path) -> None:
    async def serve(_configuration: Configuration, layout: StateLayout, stop: asyncio.Event) -> None:
        assert layout.root == tmp_path
        signal.raise_signal(signal.SIGTERM)
        await stop.wait()

    assert run_daemon("test", ["--state-dir", str(tmp_path)], serve) == EXIT_OK


def test_unknown_settings_are_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def serve(_configuration: Configuration, _layout: StateLayout, _stop: asyncio.Event) -> None:
        sys.exit("must not be reached")

    assert run_daemon("test", ["--state-dir", str(tmp_path), "-D", "rest.prot=1"], serve) == EXIT_USAGE
    assert "rest.port" in capsys.readouterr().err


@pytest.mark.parametrize(("daemon", "least"), [("jobmanager", LEAST_DESCRIPTORS), ("taskmanager", LEAST_ON_NODES)])
def test_a_process_with_too_few_descriptors_ends_at_once_and_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], daemon: str, least: int
) -> None:
    async def serve(*_: object) -> None:
        raise AssertionError("it must not serve")

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (least - 1, hard))
    try:
        code = run_daemon(daemon, ["--state-dir", str(tmp_path)], serve)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    said = capsys.readouterr().err
    assert code == EXIT_FAILED
    assert f"only {least - 1} files and connections, and needs at least {least}" in said
    assert "ulimit -n" in said
