"""The console in a real browser, with 1,000 jobs and 200 nodes: until a page can be used, and what an idle one costs.

The application is the JobManager's own, over made-up jobs and with a clock that runs. Pages are loaded from a real
JobManager, too, with 1,000 jobs, 100 of which have stub drivers. A page is interactive when its document is complete
and its scripts have run (the end of ``DOMContentLoaded``). An idle page is open and in front, and nobody touches it.
The pages of jobs have 300 events, most of them marks, and those of streams 1,000 batches; one stream has a batch every
10 s. The cost of an idle page is the processor time of the server, and that of all processes of the browser, beyond
that of an empty page (``about:blank``). Of a real JobManager, which has work without any page, the cost of the server
is also what it needs beyond the time with an empty page.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from bench.commands import temporary_directory
from bench.control_plane.real_site import real_site
from bench.measure import Figure, Goal
from bench.plan import Plan
from tests.integration.console.browser import Window, chromium, window_with_token
from tests.integration.console.large_site import BATCH, BUSY, IDLE, large_site
from tests.unit.rest.server import TOKEN

_JOBS, _NODES, _LOG_BYTES = 1000, 200, 1_000_000
_PAGES = {
    "overview": "/",
    "batch job": f"/jobs/{BATCH}",
    "stream": f"/jobs/{IDLE}",
    **{
        path[1:]: path
        for path in ("/jobs", "/nodes", "/taskmanagers", "/savepoints", "/events", "/blobs", "/leadership")
    },
}
_REAL_PAGES = ("/", "/jobs", "/nodes", "/taskmanagers", "/savepoints", "/events", "/blobs", "/leadership", "/audit")
_IDLE_PAGES = {
    "overview": "/",
    "batch job": f"/jobs/{BATCH}",
    "stream without batches": f"/jobs/{IDLE}",
    "stream with a batch every 10 s": f"/jobs/{BUSY}",
}
_INTERACTIVE_GOAL = Goal(at_most=1.0)
_IDLE_GOAL = Goal(at_most=0.01)
_INTERACTIVE = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd / 1000"
_SETTLED_MS = 8000  # the page has its first news, and the browser has compiled its scripts
_TICK = os.sysconf("SC_CLK_TCK")


def measure(plan: Plan) -> list[Figure]:
    """Each page is loaded once a repetition, into a browser that has its scripts and styles."""
    seconds = plan.size(60, 10)
    loads: dict[str, list[float]] = {name: [] for name in _PAGES}
    served: dict[str, list[float]] = {name: [] for name in _IDLE_PAGES}
    shown: dict[str, list[float]] = {name: [] for name in _IDLE_PAGES}
    with (
        large_site(_JOBS, _NODES, _LOG_BYTES) as (site, _),
        chromium() as browser,
        window_with_token(browser, site.base, TOKEN) as window,
    ):
        for _ in plan.turns("pages of the console"):
            for name, samples in loads.items():
                window.open(_PAGES[name])
                samples.append(float(window.page.evaluate(_INTERACTIVE)))
            window.page.goto("about:blank")
            window.page.wait_for_timeout(_SETTLED_MS)
            _, nothing = _cost(window, seconds, time.process_time)
            for name, path in _IDLE_PAGES.items():
                window.open(path)
                window.page.wait_for_timeout(_SETTLED_MS)
                server, browsing = _cost(window, seconds, time.process_time)
                served[name].append(server)
                shown[name].append(max(0.0, browsing - nothing))
    return [
        *(Figure(f"{name}: interactive", "s", tuple(all_), _INTERACTIVE_GOAL) for name, all_ in loads.items()),
        *_of_a_real_job_manager(plan),
        *(Figure(f"{name}, idle: server", "cores", tuple(all_), _IDLE_GOAL) for name, all_ in served.items()),
        *(Figure(f"{name}, idle: browser", "cores", tuple(all_), _IDLE_GOAL) for name, all_ in shown.items()),
    ]


def _of_a_real_job_manager(plan: Plan) -> list[Figure]:
    running, seconds = plan.size(100, 5), plan.size(60, 10)
    with temporary_directory() as directory, real_site(directory, running, plan.size(_JOBS, 50) - running) as site:
        pages = {**{path[1:] or "overview": path for path in _REAL_PAGES}, "running job": f"/jobs/{site.job}"}
        loads: dict[str, list[float]] = {name: [] for name in pages}
        served: dict[str, list[float]] = {name: [] for name in ("overview", "jobs", "running job")}
        shown: dict[str, list[float]] = {name: [] for name in served}
        with chromium() as browser, window_with_token(browser, site.base, site.token) as window:
            window.open("/")  # the browser gets scripts and styles
            for _ in plan.turns("pages of a real JobManager"):
                for name, samples in loads.items():
                    window.open(pages[name])
                    samples.append(float(window.page.evaluate(_INTERACTIVE)))
                window.page.goto("about:blank")
                window.page.wait_for_timeout(_SETTLED_MS)
                without, nothing = _cost(window, seconds, partial(_processor_seconds, site.process))
                for name, samples in served.items():
                    window.open(pages[name])
                    window.page.wait_for_timeout(_SETTLED_MS)
                    server, browsing = _cost(window, seconds, partial(_processor_seconds, site.process))
                    samples.append(max(0.0, server - without))
                    shown[name].append(max(0.0, browsing - nothing))
    what = "of a real JobManager"
    return [
        *(Figure(f"{name} {what}: interactive", "s", tuple(all_), _INTERACTIVE_GOAL) for name, all_ in loads.items()),
        *(Figure(f"{name} {what}, idle: server", "cores", tuple(all_), _IDLE_GOAL) for name, all_ in served.items()),
        *(Figure(f"{name} {what}, idle: browser", "cores", tuple(all_), _IDLE_GOAL) for name, all_ in shown.items()),
    ]


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _cost(window: Window, seconds: float, serving: Callable[[], float]) -> tuple[float, float]:
    """Return the cores that the server and the browser need while the page stays open.

    ``serving``: returns the processor time of the server until now, in seconds.
    """
    began, server, browser = time.monotonic(), serving(), _browser_seconds()
    window.page.wait_for_timeout(seconds * 1000)
    elapsed, after = time.monotonic() - began, _browser_seconds()
    # A renderer that the browser has started in advance, for the next page, is not this page's.
    spent = sum(after[pid] - before for pid, before in browser.items() if pid in after)
    return (serving() - server) / elapsed, spent / elapsed


def _browser_seconds() -> dict[int, float]:
    """Return the processor time, in seconds, of each chromium process below this one."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue  # it has ended
        name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        found[int(path.parent.name)] = (int(fields[1]), name, (int(fields[11]) + int(fields[12])) / _TICK)
    seconds, below = {}, {os.getpid()}
    while below:
        below = {pid for pid, (parent, _, _) in found.items() if parent in below}
        seconds.update({pid: found[pid][2] for pid in below if "chrom" in found[pid][1]})
    return seconds
