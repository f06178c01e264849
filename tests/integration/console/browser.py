"""Debian's chromium on the pages of a cluster: what a person sees, and all that goes wrong meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Response, expect, sync_playwright

from tests.integration.clusters import Cluster
from tests.integration.conditions import DEADLINE

# As root there is no sandbox; the rest keeps the browser from asking for anything outside the machine.
_OPTIONS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
expect.set_options(timeout=DEADLINE * 1000)  # a page asks for news every few seconds, and the machine may be busy
DESKTOP, PHONE = (1200, 900), (390, 800)
_SERIOUS = ("serious", "critical")


@dataclass
class Window:
    """A logged-in page; ``problems`` has what a developer would see in red."""

    page: Page
    url: str  # of the JobManager
    problems: list[str] = field(default_factory=list)

    def open(self, path: str) -> None:
        """Show a page, and wait until it has loaded."""
        self.page.goto(f"{self.url}{path}", wait_until="load")

    def sees(self, text: str, within: str = "main") -> None:
        """Wait until the page shows a text, without a reload. Fails when it does not."""
        self.page.locator(within).filter(has_text=text).first.wait_for(timeout=DEADLINE * 1000)

    def is_too_wide(self) -> bool:
        return bool(self.page.evaluate("document.documentElement.scrollWidth > innerWidth"))

    def tab(self) -> tuple[str, str]:
        """Return the first word or words of the title, which are the state if there is one, and the icon's file."""
        icon = self.page.locator("#icon").get_attribute("href") or ""
        return self.page.title().partition(" · ")[0], icon.rpartition("/")[2]

    def accessibility_problems(self) -> list[str]:
        """What axe finds serious, with the element."""
        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']}: {each['help']}: {node['html'][:200]}"
            for each in found
            if each["impact"] in _SERIOUS
            for node in each["nodes"]
        ]

    def faults_of_pages(self, texts: Mapping[str, str]) -> list[str]:
        """Open each path, and wait until its page shows a text. Return what axe finds serious, and pages too wide."""
        found = []
        for path, text in texts.items():
            self.open(path)
            self.sees(text)
            found += [f"{path}: {problem}" for problem in self.accessibility_problems()]
            if self.is_too_wide():
                found.append(f"{path}: wider than the window")
        return found

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.type} in the console: {message.text}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"HTTP status {response.status} for {response.url}")

    def watch(self) -> None:
        """Note what goes wrong from now on."""
        self.page.on("console", self._heard)
        self.page.on("response", self._answered)
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error.message}"))


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run the browser."""
    program = shutil.which("chromium")
    assert program is not None, "no chromium: tools/ensure-chromium.sh installs one"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def window(
    browser: Browser,
    cluster: Cluster,
    size: tuple[int, int] = DESKTOP,
    theme: Literal["light", "dark"] = "light",
) -> Iterator[Window]:
    """Log in as a person does, with the link that the command prints. Fails when anything went wrong on a page."""
    link = cluster.ask(lambda client: client.login_link())
    context = browser.new_context(
        ignore_https_errors=True, color_scheme=theme, viewport={"width": size[0], "height": size[1]}
    )
    with _watched(context, cluster.record.url) as opened:
        opened.page.goto(f"{opened.url}{link.path}")
        opened.sees("Overview", "header")
        yield opened


@contextmanager
def window_with_token(browser: Browser, url: str, token: str) -> Iterator[Window]:
    """Log in with the form of the login page. Fails when anything went wrong on a page."""
    context = browser.new_context(ignore_https_errors=True, viewport={"width": DESKTOP[0], "height": DESKTOP[1]})
    with _watched(context, url) as opened:
        opened.page.goto(f"{url}/login")
        opened.page.get_by_label("Token").fill(token)
        opened.page.get_by_role("button", name="Log in").click()
        opened.sees("Overview", "header")
        yield opened


@contextmanager
def _watched(context: BrowserContext, url: str) -> Iterator[Window]:
    try:
        opened = Window(context.new_page(), url)
        opened.watch()
        yield opened
        assert not opened.problems, "\n".join(opened.problems)
    finally:
        context.close()
