"""The phases of a job's requests, and which events may lead from one phase to which others.

The state machine checks each step against this table, and the diagram in the documentation is drawn from it.
"""

from __future__ import annotations

import enum

from emberkeep.lifecycle.requests import events as ev


class RequestPhase(enum.Enum):
    IDLE = "IDLE"  # no request to the job is open
    RECORDING_REQUEST = "RECORDING_REQUEST"  # a new request is being written; a move that it replaces is still there
    OPEN = "OPEN"  # the current request is durable: replies to the JobMaster contain it, and each new attempt gets it
    RECORDING_END = "RECORDING_END"  # the end of the current request is being written
    STOPPED = "STOPPED"  # a suspend or a drain has stopped the job permanently; the job ends with its script
    ENDED = "ENDED"  # the job has ended; a write that was under way may still report


_P = RequestPhase
Row = dict[type[ev.Event], frozenset[RequestPhase]]


def _row(phase: RequestPhase, moves: dict[type[ev.Event], set[RequestPhase]]) -> Row:
    anywhere = (ev.RequestMade, ev.Reported, ev.DeadlinePassed, ev.NextAttemptRecorded)
    row: Row = {kind: frozenset({phase}) for kind in anywhere}
    row[ev.JobEnded] = frozenset({_P.ENDED})
    row.update({kind: frozenset(targets) for kind, targets in moves.items()})
    return row


TRANSITIONS: dict[RequestPhase, Row] = {
    _P.IDLE: _row(
        _P.IDLE,
        {
            ev.TakenOver: {_P.IDLE, _P.OPEN, _P.STOPPED},
            ev.RequestMade: {_P.RECORDING_REQUEST},
            ev.Reported: {_P.IDLE, _P.RECORDING_END},
        },
    ),
    _P.RECORDING_REQUEST: _row(
        _P.RECORDING_REQUEST,
        {
            ev.WriteUncertain: {_P.RECORDING_REQUEST},
            ev.RequestWritten: {_P.OPEN, _P.RECORDING_END},
            ev.RequestNotWritten: {_P.IDLE, _P.OPEN},
        },
    ),
    _P.OPEN: _row(
        _P.OPEN,
        {
            ev.RequestMade: {_P.OPEN, _P.RECORDING_REQUEST},
            ev.Reported: {_P.OPEN, _P.RECORDING_END},
            ev.DeadlinePassed: {_P.OPEN, _P.RECORDING_END},
            ev.NextAttemptRecorded: {_P.OPEN, _P.IDLE},
        },
    ),
    _P.RECORDING_END: _row(
        _P.RECORDING_END, {ev.EndWritten: {_P.IDLE, _P.STOPPED}, ev.EndNotWritten: {_P.OPEN, _P.IDLE}}
    ),
    _P.STOPPED: _row(_P.STOPPED, {}),
    _P.ENDED: _row(
        _P.ENDED,
        {
            kind: {_P.ENDED}
            for kind in (ev.WriteUncertain, ev.RequestWritten, ev.RequestNotWritten, ev.EndWritten, ev.EndNotWritten)
        },
    ),
}
