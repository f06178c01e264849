"""A stream that logs what it does, and what the page of its logs shows in a browser."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from playwright.sync_api import Page

from tests.integration.streams import SCRIPT

# Its driver logs each batch: the one with number 1 as an error, the others as warnings.
LOGGING = SCRIPT.replace("import os, sys\n", "import os, sys, time\n").replace(
    "    aside.rename(",
    "    said = time.strftime('%y/%m/%d %H:%M:%S'), 'ERROR' if number == 1 else 'WARN'\n"
    "    print(*said, f'Store: batch {number} is stored', file=sys.stderr, flush=True)\n"
    "    aside.rename(",
)
_TIME = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d")
_EXACTNESS = timedelta(seconds=1)  # of the driver's times
_READ = """() => [...document.querySelectorAll("#log .record")].map((record) => {
  const writer = record.querySelector(".writer");
  return [writer?.textContent ?? "", record.textContent.slice(writer?.textContent.length ?? 0)];
})"""


def records(page: Page) -> list[tuple[str, str]]:
    """Return who has written each record that is shown, and its text."""
    return [(writer, text) for writer, text in page.evaluate(_READ)]


def is_by_time(shown: list[tuple[str, str]]) -> bool:
    """True if no record is earlier than one before it, as exactly as both say it."""
    said = [found[0] for _, text in shown if (found := _TIME.match(text))]
    moments = [datetime.strptime(one, "%y/%m/%d %H:%M:%S").replace(tzinfo=UTC) for one in said]
    newest = moments[0]
    for moment in moments:
        if moment < newest - _EXACTNESS:
            return False
        newest = max(newest, moment)
    return True


def downloaded(page: Page) -> str:
    """Download what is shown, and return it."""
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    return Path(download.value.path()).read_text(encoding="utf-8")
