"""Read back which of the watchdog's alarms earlier leaders have raised about a job and not cleared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from emberkeep.chronicle.occurrence import Occurrence, What, epoch_of
from emberkeep.watchdog.model import Alarm, AlarmKind

TYPES: Final = frozenset({What.ALARM_RAISED, What.ALARM_CLEARED})
_KINDS: Final = {kind.value: kind for kind in AlarmKind}


def open_alarms(occurrences: Iterable[Occurrence], epoch: int) -> tuple[Alarm, ...]:
    """Return the alarms that leaders before ``epoch`` have left open. ``occurrences``: of one job, in any order.

    One that the leader of ``epoch`` has raised again is its own.
    """
    newest: dict[tuple[str, str], Occurrence] = {}
    for each in sorted(occurrences, key=lambda each: each.id):
        newest[each.details.get("kind", ""), each.details.get("query", "")] = each
    return tuple(
        Alarm(kind=_KINDS[kind], query=query, since_ms=each.time_ms, message=each.message)
        for (kind, query), each in newest.items()
        if each.what == What.ALARM_RAISED and epoch_of(each.id) < epoch and kind in _KINDS
    )
