"""How an attempt has ended, judged by its script, its JVM and errors before the script."""

from __future__ import annotations

import traceback

from emberkeep.base.errors import Conflict, EmberkeepError, RetryLater, UnknownOutcome
from emberkeep.jobs.model import AttemptOutcome, FailureKind
from emberkeep.spark.errors import InvalidSparkConfiguration, InvalidSparkDefaults
from emberkeep.spark.exception_text import in_one_line
from emberkeep.spark.model import JvmExit
from emberkeep.spark.queries.checkpoint_guard import was_overtaken
from emberkeep.spark.script.runner import CANCELLED, OutcomeKind, ScriptOutcome

ENDED_BEFORE = AttemptOutcome(
    exit_code=CANCELLED.exit_code,
    kind=FailureKind.LOST,
    message="the driver was ended by SIGTERM before its script began",
)


def not_started(error: EmberkeepError) -> AttemptOutcome:
    """Return the outcome of an attempt whose script cannot begin.

    The job's settings are as much its own as its script, which would meet the same error with its first SparkContext.
    No other start helps, so none is tried. What a node's files say may be right on another node.
    """
    if isinstance(error, InvalidSparkConfiguration) and not isinstance(error, InvalidSparkDefaults):
        return AttemptOutcome(exit_code=1, kind=FailureKind.SCRIPT, message=str(error), lasting=True)
    lasting = not isinstance(error, RetryLater | Conflict | UnknownOutcome)
    return AttemptOutcome(exit_code=1, kind=FailureKind.SETUP, message=str(error), lasting=lasting)


def cannot_start(error: BaseException) -> AttemptOutcome:
    """Return the outcome after an error that is not an EmberkeepError, such as a failing import."""
    return AttemptOutcome(
        exit_code=1,
        kind=FailureKind.SETUP,
        message=f"the driver cannot start: {type(error).__name__}: {in_one_line(str(error))}",
        traceback="".join(traceback.format_exception(error)),
        lasting=True,
    )


def outcome_of(script: ScriptOutcome, attempt: int, jvm_end: JvmExit | None) -> AttemptOutcome:
    """Return the outcome of an attempt whose script has ended. ``jvm_end``: how its JVM has died; None if it lives."""
    if jvm_end is not None and script.exit_code != 0:
        return AttemptOutcome(
            exit_code=script.exit_code,
            kind=FailureKind.LOST,
            message=f"the driver's JVM was {jvm_end}",
            traceback=script.traceback_text or "",
        )
    if script.exit_code == 0:
        return AttemptOutcome(exit_code=0)
    return AttemptOutcome(
        exit_code=script.exit_code,
        kind=_failure_kind(script, attempt),
        message=_cause(script),
        traceback=script.traceback_text or "",
    )


def _failure_kind(script: ScriptOutcome, attempt: int) -> FailureKind:
    # SIGTERM (from a cancellation, a task manager that ends, or an operator) is not a failure of the script. The
    # JobManager knows whether it was a cancellation.
    if script.kind is OutcomeKind.CANCELLED:
        return FailureKind.LOST
    # An earlier attempt wrote a last entry to a checkpoint while this one ran: the next continues after that entry.
    if attempt > 1 and was_overtaken(f"{script.message} {script.traceback_text}"):
        return FailureKind.LOST
    return FailureKind.SCRIPT


def _cause(script: ScriptOutcome) -> str:
    if script.kind is OutcomeKind.CANCELLED:
        return "the script was ended by SIGTERM"
    if script.kind is OutcomeKind.EXITED:
        return script.message or f"the script exited with code {script.exit_code}"
    line = in_one_line(script.message or "")
    return f"{script.exception_type}: {line}" if line else str(script.exception_type)
