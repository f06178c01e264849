"""What the timeline of a job's page shows in a browser."""

from __future__ import annotations

import re
from collections import Counter

from playwright.sync_api import Locator, Page, expect

_EXACT = 4  # pixels; a pointer is at whole ones, and what is beside it moves away when zoomed


def bands(page: Page) -> set[str]:
    """Return the states that are drawn."""
    page.locator("#timeline-plot rect.band").first.wait_for()
    drawn = page.locator("#timeline-plot rect.band").evaluate_all("all => all.map((one) => one.classList[1])")
    return set(drawn)


def marks(page: Page) -> Counter[str]:
    """Return how many marks of each kind are drawn."""
    page.locator("#timeline-plot path.mark").first.wait_for()
    titles = page.locator("#timeline-plot path.mark title").all_text_contents()
    return Counter(title.splitlines()[1] for title in titles)


def lanes(page: Page) -> list[str]:
    return page.locator("#timeline-plot text.lane").all_text_contents()


def mark(page: Page, kind: str) -> Locator:
    """Return the first mark of a kind."""
    return page.locator("#timeline-plot path.mark").filter(has_text=kind).first


def middle(drawn: Locator) -> tuple[float, float]:
    """Return where it is in the window."""
    box = drawn.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def is_at(drawn: Locator, left: float) -> bool:
    return abs(middle(drawn)[0] - left) <= _EXACT


def zoom_with_the_wheel(page: Page, around: Locator, turns: int) -> float:
    """Turn the wheel with Ctrl pressed, and the pointer on what is drawn. Return where the pointer is.

    The first turn chooses a span, with a beginning and an end. Only then does a mark of a job that runs stand still:
    before, the drawing grows with the time, and the mark may leave the pointer before the wheel turns.
    """
    around.scroll_into_view_if_needed()
    page.mouse.move(*middle(around))
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    expect(page).to_have_url(re.compile("[?&]from=.*&to="))
    left, top = middle(around)
    page.mouse.move(left, top)
    for _ in range(turns - 1):
        page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    return left


def drag(page: Page, drawn: Locator, by: float) -> None:
    """Drag what is drawn to the right."""
    left, top = middle(drawn)
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(left + by, top, steps=5)
    page.mouse.up()
