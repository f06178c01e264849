"""Scrapes JobManagers each second, and writes the series as promtool's tests read them."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from itertools import groupby
from typing import Final
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from prometheus_client.parser import text_string_to_metric_families

from emberkeep.base.tls.contexts import client_context

Scrape = dict[str, float]  # by series, such as 'emberkeep_alarm{job="stream",kind="no-commit"}'
INTERVAL: Final = 1.0  # seconds
_NAME: Final = re.compile(r"\bemberkeep_\w+")
# They describe the machine of the recording, or have a value of their own in each scrape.
_LEFT_OUT: Final = re.compile(r"_free_bytes$|_bucket$|_timestamp_seconds$")


def names_in(rules: str) -> frozenset[str]:
    """Return the metrics that the alert rules read and a recording has."""
    return frozenset(name for name in _NAME.findall(rules) if not _LEFT_OUT.search(name))


def exposition_of(url: str, token: str, ca: str) -> str | None:
    """Return what the JobManager at ``url`` exposes; None if it does not answer, or another one leads."""
    request = Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
    try:
        with urlopen(request, timeout=5, context=client_context(ca)) as answer:
            text = str(answer.read().decode())
    except (OSError, HTTPException):  # the latter if it is killed in the middle of its answer
        return None
    return text if urlsplit(answer.url).netloc == urlsplit(url).netloc else None


def series_in(exposition: str, names: frozenset[str], instance: str, aliases: Mapping[str, str]) -> Scrape:
    """Return the series with these names. ``aliases``: what is written instead of values that differ in each run."""
    found = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name in names:
                labels = {name: aliases.get(value, value) for name, value in sample.labels.items()}
                shown = ",".join(
                    f'{name}="{value}"' for name, value in sorted({**labels, "instance": instance}.items())
                )
                found[f"{sample.name}{{{shown}}}"] = sample.value
    return found


def promtool_values(values: Sequence[float | None]) -> str:
    """Return the values of one series. None: the scrape had none; after a value, Prometheus marks that as stale."""
    words = []
    previous: float | None = None
    for value, run in groupby(values):
        count = len(list(run))
        if value is None:
            words += ["stale"] if previous is not None else []
            count -= previous is not None
            words += [f"_x{count}"] if count > 0 else []
        elif count == 1 or math.isnan(value):
            words += count * [_number(value)]
        else:
            words.append(f"{_number(value)}x{count - 1}")
        previous = value
    return " ".join(words)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return str(int(value)) if value.is_integer() else f"{value:.3g}"


class Scraper:
    """Scrapes in a thread of its own, until it is closed. ``read`` returns the series of all JobManagers."""

    def __init__(self, read: Callable[[], Scrape]) -> None:
        self._read = read
        self._scrapes: list[Scrape] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __len__(self) -> int:
        return len(self._scrapes)

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self._scrapes.append(self._read())

    def close(self) -> dict[str, str]:
        """Return the values of each series as promtool reads them."""
        self._ended.set()
        self._thread.join()
        names = sorted({name for scrape in self._scrapes for name in scrape})
        return {name: promtool_values([scrape.get(name) for scrape in self._scrapes]) for name in names}
