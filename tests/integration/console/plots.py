"""What the plots of a stream's page show in a browser."""

from __future__ import annotations

import re
from datetime import datetime

from playwright.sync_api import Page, expect

from tests.integration.conditions import until

# Notes on each canvas that dashed lines were drawn: those of events. Grids are not dashed.
DASHED = """
const { setLineDash } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.setLineDash = function (segments) {
  if (segments.length > 0) this.canvas.isDashed = true;
  return setLineDash.call(this, segments);
};
"""


def plotted(page: Page) -> tuple[datetime, datetime]:
    """The time that the plots of the open job's stream show, once they are drawn."""
    page.locator("#plots [data-plot=rate] canvas").first.wait_for()
    begin, end = page.locator("#plot-tools [data-span]").inner_text().removesuffix(" UTC").split(" – ")
    return datetime.fromisoformat(begin), datetime.fromisoformat(end)


def see_marks_in_each_plot(page: Page) -> None:
    """Wait for them. The page was opened with the script DASHED."""
    page.locator("#plots canvas").nth(3).wait_for()
    dashed = "[...document.querySelectorAll('#plots canvas')].every((one) => one.isDashed)"
    until(lambda: page.evaluate(dashed), "each plot has marks")


def move_one_cursor(page: Page) -> None:
    """Point at a third of the first plot; wait until the cursor is there in each, and the time is said."""
    place = page.locator("#plots")
    first = place.locator(".u-over").first
    first.scroll_into_view_if_needed()
    box = first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 3, box["y"] + 40)
    cursors = place.locator(".u-cursor-x")
    expect(cursors).to_have_count(place.locator("canvas").count())
    apart = """left => Math.max(...[...document.querySelectorAll("#plots .u-cursor-x")]
      .map((one) => Math.abs(new DOMMatrix(getComputedStyle(one).transform).m41 - left)))"""
    until(lambda: page.evaluate(apart, box["width"] / 3) <= 1, "the cursor is at the same place in each plot")
    place.locator(".plot-tip").filter(has_text=re.compile(r"\d\d:\d\d:\d\d")).wait_for()
