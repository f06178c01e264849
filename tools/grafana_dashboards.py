"""Writes the Grafana dashboards from a short description: `python -m tools.grafana_dashboards`.

A dashboard in Grafana's own form is mostly layout that repeats for each panel. Here are the questions that a panel
answers. A unit test compares the files with this description.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emberkeep.jobs.progress.records import BYTES, FILES, TIME_MS

FOLDER = Path(__file__).resolve().parent.parent / "src/emberkeep/cli/monitoring/dashboards"

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS = 24
_ROW_HEIGHT = {"stat": 4, "timeseries": 8}
_LEVELS = ((None, "green"), (1, "red"))  # of a panel that is red from 1 on


@dataclass(frozen=True)
class Panel:
    """One panel. ``queries``: expression and legend. ``bad_from_one``: red if the value is 1 or more."""

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False
    bad_from_one: bool = False
    about: str = ""


@dataclass(frozen=True)
class Board:
    """One dashboard. ``variables``: name, query, and a regular expression that takes text and value from its result."""

    name: str
    title: str
    about: str
    variables: Sequence[tuple[str, str, str]]
    panels: Sequence[Panel]


def _stat(title: str, query: str, unit: str = "short", **more: Any) -> Panel:
    return Panel(title, [(query, "")], unit, kind="stat", width=4, **more)


def _newest(expression: str) -> str:
    """Return the expression with one series each, even if a former leader's target still has some."""
    return f"max without (instance) ({expression})"


def _quantiles(metric: str) -> list[tuple[str, str]]:
    return [
        (f"histogram_quantile({q}, sum by (le) (rate({metric}_bucket[$__rate_interval])))", name)
        for q, name in ((0.5, "median"), (0.99, "99 %"))
    ]


CLUSTER = Board(
    "cluster",
    "Emberkeep / Cluster",
    "Leader, capacity, nodes, recoveries and requests of one Emberkeep cluster.",
    [],
    [
        _stat("Leader's epoch", "max(emberkeep_leader_epoch)", about="It grows with each change of the leader."),
        _stat("Leader in doubt", "max(emberkeep_leader_in_doubt)", bad_from_one=True),
        _stat("Storage unreadable", "max(emberkeep_storage_unreadable)", bad_from_one=True),
        _stat("Task managers away", "max(emberkeep_task_managers_away)", bad_from_one=True),
        _stat("Nodes blocked", "max(emberkeep_num_blocked_nodes)"),
        _stat("Certificate ends in", "min(emberkeep_certificate_expiry_timestamp_seconds) - time()", "s"),
        Panel(
            "Alarms of the watchdog",
            [("sum by (kind) (max without (instance) (emberkeep_alarm))", "{{kind}}")],
            stacked=True,
        ),
        Panel("Jobs by state", [("max by (status) (emberkeep_jobs)", "{{status}}")], stacked=True),
        Panel(
            "Restarts of drivers",
            [("sum(increase(emberkeep_job_restarts_total[$__rate_interval]))", "restarts")],
            about="Of all jobs, since this JobManager became the leader.",
        ),
        Panel(
            "Recovery, from the loss to a milestone",
            [
                (
                    "histogram_quantile(0.9, sum by (le, milestone) (rate("
                    'emberkeep_recovery_seconds_bucket{cause="failure"}[$__rate_interval])))',
                    "{{milestone}}",
                )
            ],
            "s",
            about="90 % of the restarts after a failure reached the milestone within this time.",
        ),
        Panel(
            "Slots",
            [("max(emberkeep_slots)", "all"), ("max(emberkeep_slots_free)", "free")],
        ),
        Panel(
            "Driver places",
            [("max(emberkeep_driver_places)", "all"), ("max(emberkeep_driver_places_free)", "free")],
        ),
        Panel(
            "Task managers",
            [("max(emberkeep_task_managers)", "registered"), ("max(emberkeep_task_managers_away)", "away")],
        ),
        Panel("Processors", [(_newest("emberkeep_task_manager_cpu_ratio"), "{{task_manager}}")], "percentunit"),
        Panel("Memory in use", [(_newest("emberkeep_task_manager_memory_used_bytes"), "{{task_manager}}")], "bytes"),
        Panel("Disk free", [(_newest("emberkeep_task_manager_disk_free_bytes"), "{{task_manager}}")], "bytes"),
        Panel("Standby processes ready", [("max by (kind) (emberkeep_standbys_ready)", "{{kind}}")]),
        Panel(
            "Submissions",
            [("sum by (outcome) (increase(emberkeep_submissions_total[$__rate_interval]))", "{{outcome}}")],
            stacked=True,
        ),
        Panel("Time to answer a request", _quantiles("emberkeep_http_request_duration_seconds"), "s"),
        Panel("Time to answer a message", _quantiles("emberkeep_rpc_request_duration_seconds"), "s"),
        Panel("Delay of the event loop", _quantiles("emberkeep_event_loop_lag_seconds"), "s"),
        Panel(
            "BLOBs sent and received",
            [
                ("sum(rate(emberkeep_blob_uploaded_bytes_total[$__rate_interval]))", "received by the server"),
                ("sum(rate(emberkeep_blob_downloaded_bytes_total[$__rate_interval]))", "sent by the server"),
                ("sum(rate(emberkeep_blob_cache_received_bytes_total[$__rate_interval]))", "received by caches"),
            ],
            "Bps",
        ),
    ],
)

_JOB = (
    "job",
    "query_result(max without (instance) (emberkeep_job_info))",
    r'/name="(?<text>[^"]+)|job="(?<value>[^"]+)"/g',
)

JOB = Board(
    "job",
    "Emberkeep / Job",
    "Attempts, executors and tasks of one job.",
    [_JOB],
    [
        _stat("Driver runs", 'max(emberkeep_job_running{job="$job"})'),
        _stat("Waits", 'max(emberkeep_job_waiting{job="$job"})', bad_from_one=True, about="Its page says for what."),
        _stat("Attempts", 'max(emberkeep_job_attempts_total{job="$job"})'),
        _stat("Submitted", '1000 * max(emberkeep_job_submitted_timestamp_seconds{job="$job"})', "dateTimeFromNow"),
        _stat(
            "Newest savepoint", '1000 * max(emberkeep_job_savepoint_timestamp_seconds{job="$job"})', "dateTimeFromNow"
        ),
        _stat("Alarms", 'count(max without (instance) (emberkeep_alarm{job="$job"})) or vector(0)', bad_from_one=True),
        Panel(
            "Executors",
            [
                ('max(emberkeep_job_executors_wanted{job="$job"})', "wanted"),
                ('max(emberkeep_job_executors{job="$job"})', "registered"),
            ],
        ),
        Panel(
            "Spark at work",
            [
                ('max(emberkeep_job_active_tasks{job="$job"})', "tasks"),
                ('max(emberkeep_job_active_stages{job="$job"})', "stages"),
            ],
        ),
        Panel(
            "New attempts",
            [('max(increase(emberkeep_job_attempts_total{job="$job"}[$__rate_interval]))', "attempts")],
            about="Restarts, and moves away from evacuated nodes.",
        ),
        Panel(
            "Tasks that end",
            [
                ('max by (outcome) (rate(emberkeep_job_tasks_total{job="$job"}[$__rate_interval]))', "{{outcome}}"),
            ],
            "ops",
        ),
        Panel(
            "Task time in garbage collection",
            [
                (
                    'max(rate(emberkeep_job_gc_seconds_total{job="$job"}[$__rate_interval]))'
                    ' / max(rate(emberkeep_job_task_seconds_total{job="$job"}[$__rate_interval]))',
                    "share",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Shuffled and spilled",
            [
                (
                    'max by (direction) (rate(emberkeep_job_shuffle_bytes_total{job="$job"}[$__rate_interval]))',
                    "shuffle {{direction}}",
                ),
                (
                    'max(rate(emberkeep_job_spilled_bytes_total{job="$job", where="disk"}[$__rate_interval]))',
                    "spilled to disk",
                ),
            ],
            "Bps",
        ),
        Panel(
            "Rows processed by its queries",
            [
                (
                    'max by (query) (emberkeep_query_processed_rows_per_second{job="$job"})',
                    "{{query}}",
                )
            ],
            "rowsps",
            width=24,
        ),
    ],
)

_OWN = '{job="$job", query=~"$query"}'


def _of_query(title: str, metrics: Sequence[tuple[str, str]], unit: str, about: str = "") -> Panel:
    return Panel(
        title,
        [
            (f"max by (query) (emberkeep_query_{metric}{_OWN})", f"{{{{query}}}}{f' {what}' if what else ''}")
            for metric, what in metrics
        ],
        unit,
        width=12,
        about=about,
    )


def _reported(title: str, metric: str, unit: str) -> Panel:
    """Return a panel with a number that sources report themselves, by their own name for it."""
    labels = f'{_OWN[:-1]}, metric="{metric}"}}'
    return Panel(
        title,
        [(f"max by (query, source) (emberkeep_query_source_reported{labels})", "{{query}} {{source}}")],
        unit,
        width=8,
        about="Only sources that count so have it.",
    )


def _counted(function: str, metric: str) -> str:
    return f"max by (query) ({function}(emberkeep_query_{metric}_total{_OWN}[$__rate_interval]))"


STREAM = Board(
    "stream",
    "Emberkeep / Stream",
    "Is the stream healthy, and if not, since when: the streaming queries of one job.",
    [_JOB, ("query", 'label_values(emberkeep_query_committed_batch{job="$job"}, query)', "")],
    [
        _of_query(
            "Rows per second",
            [("input_rows_per_second", "arrive"), ("processed_rows_per_second", "are processed")],
            "rowsps",
            "If rows arrive faster than they are processed for long, the query falls behind.",
        ),
        _of_query("Duration of a micro-batch", [("batch_duration_seconds", "")], "s"),
        Panel(
            "Steps of a micro-batch",
            [
                (
                    f"max by (query, phase) (rate(emberkeep_query_phase_seconds_total{_OWN}[$__rate_interval]))"
                    f" / on (query) group_left () {_counted('rate', 'batches')}",
                    "{{query}} {{phase}}",
                )
            ],
            "s",
            width=12,
            stacked=True,
            about="Time that each step takes, averaged over the batches. In addBatch Spark reads, computes and writes.",
        ),
        _of_query(
            "Since the last commit",
            [("since_commit_seconds", "")],
            "s",
            "It grows while no data arrives, too: compare with the panel on waiting.",
        ),
        _of_query("Watermark behind the present", [("watermark_gap_seconds", "")], "s"),
        _of_query(
            "Backlog",
            [("backlog_seconds", "")],
            "s",
            "Time that the rows that are not yet read take, at the rate of the newest micro-batch. It has no value "
            "while nothing is processed: see the rows. Only sources that report their offsets as numbers, such as "
            "Kafka, have a backlog.",
        ),
        _of_query("Backlog in rows", [("backlog_rows", "")], "short"),
        Panel(
            "Rows dropped as too late",
            [(_counted("increase", "late_rows"), "{{query}}")],
            width=12,
            about="If there are many, the watermark's delay may be too short.",
        ),
        _of_query("Rows in state", [("state_rows", "")], "short"),
        _of_query("Memory of the state", [("state_bytes", "")], "bytes"),
        _of_query("Commit of the state, added over tasks", [("state_commit_seconds", "")], "s"),
        _of_query("Rows of a micro-batch", [("input_rows", "")], "short"),
        _of_query("Committed micro-batch", [("committed_batch", "")], "none"),
        _of_query("Waits for data or its trigger", [("waiting", "")], "bool_yes_no"),
        _reported("Backlog in files", FILES, "short"),
        _reported("Backlog in bytes", BYTES, "bytes"),
        _reported("Time behind the source", TIME_MS, "ms"),
        Panel(
            "Alarms of the watchdog",
            [('max by (query, kind) (emberkeep_alarm{job="$job"})', "{{kind}} {{query}}")],
            width=24,
            stacked=True,
        ),
    ],
)

BOARDS = (CLUSTER, JOB, STREAM)


def render(board: Board) -> str:
    """Return the dashboard's JSON."""
    return json.dumps(_dashboard(board), indent=1) + "\n"


def _dashboard(board: Board) -> dict[str, Any]:
    return {
        "uid": f"emberkeep-{board.name}",
        "title": board.title,
        "description": board.about,
        "tags": ["emberkeep"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,  # one cursor in all panels
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "timezone": "browser",
        "links": [
            {
                "type": "dashboards",
                "title": "Emberkeep",
                "tags": ["emberkeep"],
                "asDropdown": True,
                "includeVars": True,
                "keepTime": True,
            }
        ],
        "templating": {"list": [_data_source(), *(_variable(*variable) for variable in board.variables)]},
        "panels": list(_placed(board.panels)),
    }


def _data_source() -> dict[str, Any]:
    return {"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "refresh": 1}


def _variable(name: str, query: str, regex: str) -> dict[str, Any]:
    several = {"multi": True, "includeAll": True, "allValue": ".*"} if name == "query" else {}
    return {
        "type": "query",
        "name": name,
        "label": name.capitalize(),
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "regex": regex,
        "refresh": 2,
        "sort": 1,
        **several,
    }


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    placed, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        own = _ROW_HEIGHT[panel.kind]
        if x + panel.width > _COLUMNS or (height and own != height):
            x, y = 0, y + height
        height = own
        position = {"x": x, "y": y, "w": panel.width, "h": own}
        placed.append(_panel(panel, number, position))
        x += panel.width
    return placed


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none"}
        defaults["custom"] = {"fillOpacity": 10, "showPoints": "never", "stacking": stacking}
    if panel.bad_from_one:
        steps = [{"value": value, "color": color} for value, color in _LEVELS]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"tooltip": {"mode": "multi"}} if panel.kind == "timeseries" else {},
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for index, (expression, legend) in enumerate(panel.queries)
        ],
    }


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(render(board), encoding="utf-8")


if __name__ == "__main__":
    main()
