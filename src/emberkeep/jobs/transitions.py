"""The phases of a job, and which events may lead from one phase to which others.

The state machine checks each step against this table, and the diagram in the documentation is drawn from it.
"""

from __future__ import annotations

import enum

from emberkeep.jobs import events as ev


class Phase(enum.Enum):
    NEW = "NEW"
    WITHOUT_GRAPH = "WITHOUT_GRAPH"  # its graph cannot be read now: running drivers continue, nothing is decided
    PLACING = "PLACING"  # waiting for a driver place
    RECORDING_ATTEMPT = "RECORDING_ATTEMPT"  # the next attempt's number is being written
    ADOPTING = "ADOPTING"  # writing the number of a newer attempt, which the job store did not have
    STARTING = "STARTING"  # the driver was ordered to start, or is awaited after a recovery
    RUNNING = "RUNNING"
    ENDING = "ENDING"  # the attempt is over; its driver must be proven gone before anything follows
    BACKING_OFF = "BACKING_OFF"  # no driver: waiting for the restart's delay, or for reports after a recovery
    RECORDING_RESULT = "RECORDING_RESULT"
    ENDED = "ENDED"  # the result is durable


Row = dict[type[ev.Event], frozenset[Phase]]

_P = Phase
_OVER = frozenset({_P.BACKING_OFF, _P.RECORDING_RESULT})


def _row(phase: Phase, stays: tuple[type[ev.Event], ...], moves: dict[type[ev.Event], set[Phase]]) -> Row:
    anywhere = (ev.Tick, ev.TaskManagerLost, ev.PlaceBlocked, ev.AttemptSeen)
    row: Row = {kind: frozenset({phase}) for kind in (*anywhere, *stays)}
    row.update({kind: frozenset(targets) for kind, targets in moves.items()})
    return row


_DRIVER_FACTS: tuple[type[ev.Event], ...] = (
    ev.StartAccepted,
    ev.StartRefused,
    ev.DriverNeverThere,
    ev.DriverListed,
    ev.DriverExited,
    ev.DriverVanished,
    ev.DriverNotAtHome,
    ev.JobMasterRegistered,
    ev.JobMasterHeard,
    ev.ExceptionsNoted,
    ev.TraceReported,
    ev.OutcomeReported,
    ev.MoveDriver,
    ev.RestartDriver,
)
_DRIVER_ENDS: dict[type[ev.Event], set[Phase]] = {
    ev.StartRefused: set(_OVER),
    ev.DriverExited: set(_OVER),
    ev.DriverVanished: set(_OVER),
}

TRANSITIONS: dict[Phase, Row] = {
    _P.NEW: {
        ev.Begin: frozenset({_P.PLACING, _P.STARTING, *_OVER}),
        ev.BeginWithoutGraph: frozenset({_P.WITHOUT_GRAPH}),
    },
    _P.WITHOUT_GRAPH: _row(
        _P.WITHOUT_GRAPH,
        (*(fact for fact in _DRIVER_FACTS if fact is not ev.OutcomeReported), ev.StopRecorded, ev.GraphStillAway),
        {
            ev.GraphRead: {_P.PLACING, _P.ADOPTING, _P.STARTING, _P.RUNNING, *_OVER},
            ev.GraphDamaged: {_P.ENDING, _P.RECORDING_RESULT},
            ev.CancelRequested: {_P.ENDING, _P.RECORDING_RESULT},
        },
    ),
    _P.PLACING: _row(
        _P.PLACING,
        (),
        {
            ev.AttemptSeen: {_P.PLACING, _P.ADOPTING},
            ev.PlaceGranted: {_P.RECORDING_ATTEMPT},
            ev.PlaceExplained: {_P.RECORDING_RESULT, _P.PLACING},
            ev.CancelRequested: {_P.RECORDING_RESULT},
            ev.StopRecorded: {_P.RECORDING_RESULT},
        },
    ),
    _P.RECORDING_ATTEMPT: _row(
        _P.RECORDING_ATTEMPT,
        (ev.CancelRequested, ev.StopRecorded),
        {
            ev.AttemptSeen: {_P.RECORDING_ATTEMPT, _P.ADOPTING},
            ev.AttemptRecorded: {_P.STARTING, _P.PLACING, _P.RECORDING_RESULT},
            ev.AttemptUnknown: {_P.RECORDING_ATTEMPT, _P.RECORDING_RESULT},
        },
    ),
    _P.ADOPTING: _row(
        _P.ADOPTING,
        (*(fact for fact in _DRIVER_FACTS if fact is not ev.OutcomeReported), ev.CancelRequested, ev.StopRecorded),
        {
            ev.AttemptRecorded: {_P.ADOPTING, _P.STARTING, _P.RUNNING, _P.ENDING, *_OVER},
            ev.AttemptUnknown: {_P.ADOPTING, _P.STARTING, _P.RUNNING, _P.ENDING, *_OVER},
        },
    ),
    _P.STARTING: _row(
        _P.STARTING,
        (*_DRIVER_FACTS, ev.StopRecorded),
        {
            **_DRIVER_ENDS,
            ev.AttemptSeen: {_P.STARTING, _P.ADOPTING},
            ev.DriverNeverThere: {_P.STARTING, *_OVER},
            ev.DriverListed: {_P.STARTING, _P.ENDING},
            ev.DriverNotAtHome: {_P.STARTING, *_OVER},
            ev.JobMasterRegistered: {_P.RUNNING},
            ev.OutcomeReported: {_P.ENDING, _P.RECORDING_RESULT},
            ev.CancelRequested: {_P.ENDING},
            ev.PlaceBlocked: {_P.STARTING, _P.ENDING},
            ev.Tick: {_P.STARTING, _P.ENDING, *_OVER},
        },
    ),
    _P.RUNNING: _row(
        _P.RUNNING,
        (*_DRIVER_FACTS, ev.StopRecorded),
        {
            **_DRIVER_ENDS,
            ev.AttemptSeen: {_P.RUNNING, _P.ADOPTING},
            ev.DriverNeverThere: {_P.RUNNING, *_OVER},
            ev.DriverListed: {_P.RUNNING, _P.ENDING},
            ev.OutcomeReported: {_P.ENDING, _P.RECORDING_RESULT},
            ev.CancelRequested: {_P.ENDING},
            ev.MoveDriver: {_P.RUNNING, _P.ENDING},
            ev.RestartDriver: {_P.RUNNING, _P.ENDING},
            ev.Tick: {_P.RUNNING, _P.ENDING, *_OVER},
        },
    ),
    _P.ENDING: _row(
        _P.ENDING,
        (*_DRIVER_FACTS, ev.CancelRequested, ev.StopRecorded),
        {
            **_DRIVER_ENDS,
            ev.AttemptSeen: {_P.ENDING, _P.ADOPTING},
            ev.DriverNeverThere: {_P.ENDING, *_OVER},
            ev.DriverNotAtHome: {_P.ENDING, *_OVER},
            ev.OutcomeReported: {_P.ENDING, _P.RECORDING_RESULT},
            ev.Tick: {_P.ENDING, *_OVER},
        },
    ),
    _P.BACKING_OFF: _row(
        _P.BACKING_OFF,
        (),
        {
            ev.AttemptSeen: {_P.BACKING_OFF, _P.ADOPTING},
            ev.Tick: {_P.BACKING_OFF, _P.PLACING},
            ev.CancelRequested: {_P.RECORDING_RESULT},
            ev.StopRecorded: {_P.RECORDING_RESULT},
        },
    ),
    _P.RECORDING_RESULT: _row(
        _P.RECORDING_RESULT,
        (*_DRIVER_FACTS, ev.CancelRequested, ev.StopRecorded),
        {ev.ResultRecorded: {_P.ENDED}},
    ),
    _P.ENDED: _row(_P.ENDED, (*_DRIVER_FACTS, ev.StopRecorded), {}),
}
