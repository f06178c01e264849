"""What ends up in a process's log, and what never does."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from emberkeep.adapters.logging_setup import redact, set_up_logging, set_up_logging_beside_user_code
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from tests.unit.adapters.small_disks import small_disk

TOKEN = "Zx9_secret-token-value"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Logging is global: put it back."""
    loggers = [logging.getLogger(name) for name in (None, "emberkeep")]
    before = [(logger, list(logger.handlers), logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, handlers, level, propagate in before:
        for handler in [h for h in logger.handlers if h not in handlers]:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
        logger.propagate = propagate
    logging.captureWarnings(False)
    structlog.reset_defaults()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def settings(**texts: str) -> Configuration:
    return Configuration().with_texts(
        {key.replace("_", ".", 1).replace("_", "-"): text for key, text in texts.items()}, "test"
    )


def test_a_daemon_logs_json_with_its_identity(tmp_path: Path) -> None:
    set_up_logging("taskmanager", tmp_path / "logs", settings())
    structlog.get_logger("emberkeep.x").info("driver_started", job="abc", pid_of_driver=7)
    (line,) = lines(tmp_path / "logs" / "taskmanager.log")
    assert line["event"] == "driver_started"
    assert (line["job"], line["pid_of_driver"]) == ("abc", 7)
    assert (line["process"], line["pid"], line["level"]) == ("taskmanager", os.getpid(), "info")
    assert line["logger"] == "emberkeep.x"
    assert line["timestamp"].endswith("Z")
    assert (tmp_path / "logs" / "taskmanager.log").stat().st_mode & 0o777 == 0o600


def test_a_daemons_libraries_arrive_in_the_same_shape(tmp_path: Path) -> None:
    set_up_logging("jobmanager", tmp_path, settings())
    logging.getLogger("some.library").warning("lost %d of %d", 1, 2)
    logging.getLogger("aiohttp.access").info("noise")
    (line,) = lines(tmp_path / "jobmanager.log")
    assert (line["event"], line["logger"], line["process"]) == ("lost 1 of 2", "some.library", "jobmanager")


def test_exceptions_are_one_line_with_their_traceback(tmp_path: Path) -> None:
    set_up_logging("jobmanager", tmp_path, settings())
    structlog.get_logger("emberkeep.x").error("failed", exc_info=ValueError(f"Bearer {TOKEN}"))
    (line,) = lines(tmp_path / "jobmanager.log")
    assert "ValueError" in line["exception"]
    assert TOKEN not in json.dumps(line)


def test_the_level_counts(tmp_path: Path) -> None:
    set_up_logging("jobmanager", tmp_path, settings(log_level="warning"))
    structlog.get_logger("emberkeep.x").info("quiet")
    structlog.get_logger("emberkeep.x").warning("loud")
    assert [line["event"] for line in lines(tmp_path / "jobmanager.log")] == ["loud"]


def test_a_second_set_up_replaces_the_first(tmp_path: Path) -> None:
    set_up_logging("first", tmp_path, settings())
    set_up_logging("second", tmp_path, settings())
    structlog.get_logger("emberkeep.x").info("once")
    assert lines(tmp_path / "first.log") == []
    assert len(lines(tmp_path / "second.log")) == 1


def test_files_rotate_and_the_oldest_go(tmp_path: Path) -> None:
    set_up_logging("p", tmp_path, settings(log_max_size="2000", log_files="2"))
    for number in range(100):
        structlog.get_logger("emberkeep.x").info("filler", number=number)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["p.log", "p.log.1", "p.log.2"]
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in tmp_path.iterdir())


def test_in_a_users_process_the_root_logger_is_left_to_the_user(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = list(root.handlers)
    set_up_logging_beside_user_code("driver", tmp_path, settings(), job="j", attempt=2)
    assert root.handlers == before
    logging.getLogger("user.code").warning("theirs")
    structlog.get_logger("emberkeep.x").info("ours")
    structlog.get_logger("__main__").info("ours too")
    found = lines(tmp_path / "driver.log")
    assert [line["event"] for line in found] == ["ours", "ours too"]
    assert (found[0]["process"], found[0]["job"], found[0]["attempt"]) == ("driver", "j", 2)


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Fatal, match=str(tmp_path / "file" / "x.log")):
        set_up_logging("x", tmp_path / "file", settings())


@pytest.mark.parametrize(
    "line",
    [
        f"Authorization: Bearer {TOKEN}",
        f"authorization=Bearer {TOKEN}",
        f"GET /webhdfs/v1/x?op=OPEN&delegation={TOKEN}&offset=0",
        f"GET /webhdfs/v1/x?user.name={TOKEN}",
        f"GET /login?token={TOKEN}&x=1",
        f'{{"token": "{TOKEN}"}}',
        f"{{'auth_secret': '{TOKEN}'}}",
        f"spark.authenticate.secret={TOKEN}",
        f"password: {TOKEN}",
        f"Cookie: emberkeep-8081={TOKEN}",
        f"Set-Cookie: __Host-emberkeep-443={TOKEN}; Path=/",
        f"GET /login?code={TOKEN} HTTP/1.1",
        f'"bearer {TOKEN}"',
    ],
)
def test_credentials_are_blotted_out(line: str) -> None:
    assert TOKEN not in redact(line)
    assert "******" in redact(line)


@pytest.mark.parametrize(
    "line",
    [
        "security.token-file must have the same content everywhere",
        "set security.token-file to a file",
        "the token file /etc/x/token can be read by others",
        '{"event": "tokens refilled", "tokens": 3}',
        "a secret was made",
    ],
)
def test_other_lines_stay(line: str) -> None:
    assert redact(line) == line


def test_a_redacted_json_line_is_still_json(tmp_path: Path) -> None:
    set_up_logging("p", tmp_path, settings())
    structlog.get_logger("emberkeep.x").info("call", headers={"Authorization": f"Bearer {TOKEN}"}, token=TOKEN, n=1)
    (line,) = lines(tmp_path / "p.log")
    assert line["n"] == 1
    assert TOKEN not in json.dumps(line)


def test_a_full_disk_is_reported_once_and_logging_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)  # as it is in daemons
    log = structlog.get_logger("emberkeep.x")
    with small_disk(tmp_path / "disk", "64k") as disk:
        set_up_logging("taskmanager", disk, settings())
        (disk / "filler").write_bytes(bytes(60 * 1024))
        for number in range(200):
            log.info("a line", number=number, text="x" * 100)
        said = capsys.readouterr().err
        (disk / "filler").unlink()
        log.info("after")
        last = (disk / "taskmanager.log").read_text().splitlines()[-1]
        handler = next(each for each in logging.getLogger().handlers if _is_of(each, disk))
        logging.getLogger().removeHandler(handler)
        handler.close()

    assert said.count("\n") == 1
    assert said.endswith("taskmanager.log cannot be written, lines are lost: No space left on device\n")
    assert '"event": "after"' in last


def _is_of(handler: logging.Handler, directory: Path) -> bool:
    return str(getattr(handler, "baseFilename", "")).startswith(str(directory))
