"""Hands over a driver's outcome: in a file for its task manager, and in a report to the JobManager.

Either is enough. An attempt whose outcome reaches neither counts as lost, and a script that succeeded would run again.
So a driver whose disk is full does not exit until one of the two has succeeded.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from emberkeep.adapters.cgroups.opening import find_group
from emberkeep.adapters.processes.table import MARKER_VARIABLE
from emberkeep.base.errors import EmberkeepError
from emberkeep.base.inert_text import encodable
from emberkeep.base.processes.standard_streams import flush
from emberkeep.daemons.records.driver_spec import OUTCOME_FILE, DriverSpec, write_outcome
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.slots.table.memory import reason_of_kernel

log = structlog.get_logger(__name__)
PAUSE_SECONDS = 1.0  # between tries to hand an outcome over


class Reports(Protocol):
    """The driver's link to the JobManager."""

    def report(self, outcome: AttemptOutcome) -> bool:
        """Report how the attempt ended, within a time limit. True if the JobManager has stored or refused it."""


def reason_of_own_group(environ: Mapping[str, str]) -> str:
    """Return why the kernel has ended a process of this driver; "" if it has ended none, or that cannot be read.

    With version 1 of control groups it ends one process only, usually the JVM, and the driver goes on to its end. Its
    task manager knows the reason as well, but the driver is the first to report how the attempt has ended.
    """
    group = find_group(environ.get(MARKER_VARIABLE, ""), os.getpid())
    limit_mb = None if group is None else group.memory_limit_mb()
    if group is None or limit_mb is None or not group.memory_kills():
        return ""
    return reason_of_kernel(limit_mb, is_driver=True)


def explained(outcome: AttemptOutcome, reason: str) -> AttemptOutcome:
    """Return the outcome with the reason in its message, unless it is a success or there is no reason."""
    if not reason or outcome.exit_code == 0:
        return outcome
    return msgspec.structs.replace(outcome, message=f"{outcome.message}; {reason}")


def store_outcome(spec: DriverSpec, outcome: AttemptOutcome) -> bool:
    """Write the outcome for the task manager. Return False, and log the error, if that fails."""
    try:
        write_outcome(Path(spec.directory) / OUTCOME_FILE, _encodable(outcome))
    except EmberkeepError as error:
        log.error(
            "cannot write the outcome to disk; only a report to the JobManager can preserve it", reason=str(error)
        )
        return False
    return True


def hand_over(spec: DriverSpec, outcome: AttemptOutcome, job_manager: Reports) -> None:
    """Store the outcome, then report it. Return once one of the two has succeeded.

    The process can end before that, for example if the task manager kills it. The outcome LOST is tried only once,
    because an attempt without an outcome counts as lost anyway.
    """
    outcome = _encodable(outcome)
    stored = store_outcome(spec, outcome)
    _flush_output()
    reported = job_manager.report(outcome)
    while not (stored or reported or outcome.kind is FailureKind.LOST):
        time.sleep(PAUSE_SECONDS)
        stored = store_outcome(spec, outcome)
        reported = job_manager.report(outcome)


def _encodable(outcome: AttemptOutcome) -> AttemptOutcome:
    """Return the outcome with escapes for what is no UTF-8: the script's exception may quote such a name or text."""
    return msgspec.structs.replace(outcome, message=encodable(outcome.message), traceback=encodable(outcome.traceback))


def _flush_output() -> None:
    """Flush the script's output, as far as the disk allows."""
    for stream in (sys.stdout, sys.stderr):
        try:
            flush(stream)
        except Exception as error:  # noqa: BLE001 - the stream may be any object of the script's
            log.warning("the end of the job's output is lost", reason=str(error))
