"""Logging of Emberkeep's processes: JSON lines in a rotating file, and readable lines on a terminal.

Everything passes through the standard library's loggers, so messages of libraries have the same form. Tokens and other
credentials are masked in the finished line, whether they come from a value, a message or a traceback.
"""

from __future__ import annotations

import contextlib
import io
import logging
import logging.handlers
import os
import re
import sys
from pathlib import Path
from typing import Any

import structlog
from structlog.typing import EventDict, Processor

from emberkeep.base.configuration.options.logs import LOG_FILES, LOG_LEVEL, LOG_MAX_SIZE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal
from emberkeep.base.files.private import make_private

_OWN = "emberkeep"
# These libraries log each request or connection at INFO. Our metrics cover what matters.
_QUIET = ("aiohttp", "asyncio", "kazoo", "py4j")
# It logs each try that fails; we log the beginning and the end of a failure.
_SILENT = "opentelemetry.exporter"

_BLOT = "******"
_CREDENTIALS = re.compile(
    r"""(?ix)
    ( \bbearer\s+                                                      # Authorization: Bearer …
    | \b(?:__Host-)?emberkeep-[0-9]{1,5}=                              # our cookie
    | /login\?code=                                                    # a login link
    | \b(?:delegation|user\.name)=                                      # a state gateway's credential in a URL
    | (?:token|secret|password|passwd|authorization) \\?["']? \s*[=:]\s* (?:\\?["'])? (?:bearer\s+)?
    )
    [^\s"'&,;}\\]{4,}
    """
)

_ABOUT_THE_RECORD: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def set_up_logging(process: str, directory: Path, configuration: Configuration, **identity: str | int) -> None:
    """Set up a daemon's logging: write everything, libraries included, to ``directory/<process>.log``.

    The options ``log.*`` set the level and the rotation. If standard error is a terminal, the lines go there as well.
    Each line of the file carries ``process``, the pid and ``identity``. Raises Fatal if the file cannot be opened for
    writing.
    """
    handlers = [_file_handler(process, directory, configuration, identity)]
    if sys.stderr.isatty():
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setFormatter(_formatter(structlog.dev.ConsoleRenderer(), {}))
        handlers.append(terminal)
    _install(logging.getLogger(), handlers, configuration)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger(_SILENT).setLevel(logging.CRITICAL)
    logging.captureWarnings(True)


def set_up_logging_beside_user_code(
    process: str, directory: Path, configuration: Configuration, **identity: str | int
) -> None:
    """Set up logging in a process that runs a user's script: write only Emberkeep's own messages to the file.

    The root logger stays as it is, so that the script's own ``logging.basicConfig`` works. Raises Fatal if the file
    cannot be opened for writing.
    """
    own = logging.getLogger(_OWN)
    own.propagate = False
    _install(own, [_file_handler(process, directory, configuration, identity)], configuration)


def library_logger(library: str) -> logging.Logger:
    """Return a logger for a library's records that keeps them out of the output of a user's script."""
    return logging.getLogger(f"{_OWN}.{library}")


def close_logs() -> None:
    """Write what is buffered and close the files, for a process that ends without Python's exit handlers."""
    logging.shutdown()


def _file_handler(
    process: str, directory: Path, configuration: Configuration, identity: dict[str, str | int]
) -> logging.Handler:
    path = directory / f"{process}.log"
    try:
        make_private(directory)
        handler = _PrivateRotatingFile(
            path, maxBytes=configuration[LOG_MAX_SIZE], backupCount=configuration[LOG_FILES], encoding="utf-8"
        )
    except OSError as error:
        raise Fatal(
            f"cannot write the log {path}: {error.strerror}", hint="check free space and permissions of that directory"
        ) from error
    about = {"process": process, "pid": os.getpid(), **identity}
    handler.setFormatter(_formatter(structlog.processors.JSONRenderer(), about))
    return handler


def _install(logger: logging.Logger, handlers: list[logging.Handler], configuration: Configuration) -> None:
    for old in list(logger.handlers):
        if isinstance(old.formatter, _Redacting):  # installed by an earlier set-up
            logger.removeHandler(old)
            old.close()
    for handler in handlers:
        logger.addHandler(handler)
    logger.setLevel(configuration[LOG_LEVEL].upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_ABOUT_THE_RECORD,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=_own_logger,
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


def _own_logger(*names: str) -> logging.Logger:
    """Return the logger of a module. ``python -m`` names the module that it runs ``__main__``: log it as ours."""
    name = names[0] if names else _OWN
    return logging.getLogger(f"{_OWN}.main" if name == "__main__" else name)


def _formatter(renderer: Processor, about: dict[str, str | int]) -> logging.Formatter:
    def add_identity(_logger: Any, _method: str, event: EventDict) -> EventDict:
        return {**event, **{key: value for key, value in about.items() if key not in event}}

    processors: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, add_identity]
    if not isinstance(renderer, structlog.dev.ConsoleRenderer):
        processors.append(structlog.processors.format_exc_info)
    return _Redacting(foreign_pre_chain=_ABOUT_THE_RECORD, processors=[*processors, renderer])


class _Redacting(structlog.stdlib.ProcessorFormatter):
    """Masks credentials in the finished line."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def redact(line: str) -> str:
    """Return ``line`` with credentials masked: values after ``Bearer``, ``token=``, ``"password":`` and the like."""
    return _CREDENTIALS.sub(rf"\1{_BLOT}", line)


class _PrivateRotatingFile(logging.handlers.RotatingFileHandler):
    """A log file that only its owner can read: its lines name paths, hosts and user code.

    ``_lost``: how many lines could not be written since the last one that was.
    """

    _lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        lost = self._lost
        super().emit(record)
        if self._lost == lost:
            self._lost = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name in logging
        """Say once that lines are lost. A traceback for each would fill what is left of the disk."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._lost += 1
        if self._lost == 1:
            with contextlib.suppress(OSError):
                problem = f"the log {self.baseFilename} cannot be written, lines are lost: {error.strerror or error}"
                sys.stderr.write(f"emberkeep: {problem}\n")
                sys.stderr.flush()

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return io.TextIOWrapper(io.FileIO(descriptor, "a"), encoding=self.encoding, errors="backslashreplace")
