"""Events of a real cluster, where people and programs read them: by the command, over REST and on the page."""

from __future__ import annotations

import html
import json
from typing import Any
from urllib.parse import urlencode

from emberkeep.base.ids import JobId
from emberkeep.chronicle.occurrence import What
from tests.integration.clusters import Cluster
from tests.integration.conditions import until

_MOST = 1000


def shown_events(cluster: Cluster, *types: What, job: JobId | None = None, count: int = 1) -> list[Any]:
    """Events of these types, oldest first, once there are so many: as the command prints them.

    REST returns the same events, and the page shows their messages and who asked for them.
    """
    of_job = () if job is None else (job,)
    chosen = tuple(word for what in types for word in ("--type", what))

    def printed() -> list[Any]:
        told = cluster.shell.done("events", *of_job, *chosen, "--limit", str(_MOST), "-o", "json").out
        return [json.loads(line) for line in told.splitlines()]

    events = until(
        lambda: found if len(found := printed()) >= count else None,
        lambda: f"{count} events of {types}: {cluster.shell.run('events', *of_job).out}",
    )
    query = urlencode([("type", what) for what in types])
    listed = json.loads(cluster.shown(f"/v1/events{f'/jobs/{job}' if job else ''}?{query}&limit={_MOST}"))["events"]
    assert listed[::-1][: len(events)] == events
    page = html.unescape(cluster.shown(f"{f'/jobs/{job}' if job else ''}/events?{query}"))
    for event in events:
        assert event["message"] in page, event
        assert event["by"] in page, event
    return events
