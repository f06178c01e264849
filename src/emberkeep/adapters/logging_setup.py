"""Logs of our own processes: JSON lines in a file that rotates, and readable lines where a person watches (a terminal).

Everything passes through the standard library's loggers, so libraries' messages arrive in the same shape. Tokens and
other credentials are blotted out of the finished line, wherever they came from (a value, a message, a traceback).
"""

from __future__ import annotations

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

from emberkeep.base.configuration.options import LOG_FILES, LOG_LEVEL, LOG_MAX_SIZE
from emberkeep.base.configuration.values import Configuration
from emberkeep.base.errors import Fatal

_OWN = "emberkeep"
# Their INFO lines tell each request or connection; what matters of that is measured instead.
_QUIET = ("aiohttp", "asyncio", "kazoo", "py4j")

_BLOT = "******"
_CREDENTIALS = re.compile(
    r"""(?ix)
    ( \bbearer\s+                                                      # Authorization: Bearer …
    | \bemberkeep-[0-9a-f]{8}=                                         # our cookie
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
    """For a daemon: all that this process logs, libraries included, goes to ``directory/<process>.log`` as the options
    ``log.*`` say, and on a terminal also to standard error.

    Each line of the file carries ``process``, the pid and ``identity``. Raises Fatal when the file cannot be written.
    """
    handlers = [_file_handler(process, directory, configuration, identity)]
    if sys.stderr.isatty():
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setFormatter(_formatter(structlog.dev.ConsoleRenderer(), {}))
        handlers.append(terminal)
    _install(logging.getLogger(), handlers, configuration)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)


def set_up_logging_beside_user_code(
    process: str, directory: Path, configuration: Configuration, **identity: str | int
) -> None:
    """For a process that belongs to a user's script: only what Emberkeep itself logs goes to the file. The root logger
    stays as it is, so that the script's own ``logging.basicConfig`` does what it says. Raises Fatal."""
    own = logging.getLogger(_OWN)
    own.propagate = False
    _install(own, [_file_handler(process, directory, configuration, identity)], configuration)


def _file_handler(
    process: str, directory: Path, configuration: Configuration, identity: dict[str, str | int]
) -> logging.Handler:
    path = directory / f"{process}.log"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        if isinstance(old.formatter, _Redacting):  # of an earlier set-up
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
    """The module that ``python -m`` runs is called ``__main__``; it is ours all the same."""
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
    """Blots credentials out of the line as it will be written."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def redact(line: str) -> str:
    """The line with what follows ``Bearer``, ``token=``, ``"password":`` and the like replaced by ``******``."""
    return _CREDENTIALS.sub(rf"\1{_BLOT}", line)


class _PrivateRotatingFile(logging.handlers.RotatingFileHandler):
    """Log lines name paths, hosts and user code: only their owner reads them."""

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return io.TextIOWrapper(io.FileIO(descriptor, "a"), encoding=self.encoding, errors="backslashreplace")
