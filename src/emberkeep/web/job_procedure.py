"""A job's procedure (stop, savepoint or move) in words. Pure functions."""

from __future__ import annotations

from emberkeep.jobmanager.views.procedures import ProcedureView
from emberkeep.lifecycle.model import Procedure, ProcedurePhase
from emberkeep.web.formats import byte_size

_NAMES = {
    Procedure.SAVEPOINT: "Savepoint",
    Procedure.SUSPEND: "Stop with savepoint",
    Procedure.DRAIN: "Drain and stop",
    Procedure.MOVE: "Move to another node",
}


def procedure_name(view: ProcedureView | None) -> str:
    if view is None:
        return ""
    if view.request is None:
        return "Stop"
    return "Periodic savepoint" if view.request.periodic else _NAMES[view.request.procedure]


def procedure_text(view: ProcedureView | None) -> str:
    """Describe the procedure's progress; "" if there is no procedure."""
    if view is None:
        return ""
    if view.savepoint:
        return f"the savepoint {view.savepoint} is complete; the script runs to its end"
    told = view.progress
    if told is None:
        return f"waits for {view.waiting}" if view.waiting else "waits for the driver"
    if told.phase is ProcedurePhase.COPYING and told.files_total:
        return f"copying {told.files_done} of {told.files_total} files, {byte_size(told.bytes_done)}"
    return told.detail or told.phase.value.lower().replace("_", " ")
