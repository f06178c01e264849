"""Passes what the audit log records on to the chronicle, as far as users read about it there."""

from __future__ import annotations

from collections.abc import Callable

from emberkeep.audit.entry import Entry, Outcome
from emberkeep.audit.refusals import Refusals
from emberkeep.base.clock import since_boot
from emberkeep.chronicle.ports import Recorder
from emberkeep.jobmanager.notes.audit_notes import noted


def into_chronicle(chronicle: Recorder, now: Callable[[], float] = since_boot) -> Callable[[Entry], None]:
    """Return what notes an entry in the chronicle. Of many refusals in a minute, the first are noted; others count."""
    refusals = Refusals()

    def note(entry: Entry) -> None:
        entries: list[Entry | None] = [entry]
        if entry.outcome == Outcome.REFUSED:
            entries = [*refusals.due(now()), refusals.admit(entry, now())]
        for each in entries:
            occurrence = None if each is None else noted(each)
            if occurrence is not None:
                chronicle.note(occurrence)

    return note
