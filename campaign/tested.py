"""``python -m campaign.tested SECONDS TEST…``: run tests until one fails, and print which, as JSON.

``campaign.planted`` runs it over a copy of the product, for bugs in what no simulated world reaches. A test that fails
with an error of the interpreter, such as TypeError, finds no planted bug: the view from outside has to.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time

import msgspec
import pytest

import emberkeep
from campaign.planted import Found
from campaign.playing import shortened
from campaign.progress import ROOT

CRASHES = (TypeError, AttributeError, NameError, ImportError, KeyError, IndexError, UnboundLocalError)


class _Watch:
    """A plugin that counts tests and notes the first failure. ``failure``: "" if there is none."""

    def __init__(self) -> None:
        self.begun = 0
        self.failure = ""

    def pytest_runtest_setup(self) -> None:
        self.begun += 1

    def pytest_exception_interact(
        self, node: pytest.Item, call: pytest.CallInfo[object], report: pytest.TestReport
    ) -> None:
        error = None if call.excinfo is None else call.excinfo.value
        if error is None or report.when != "call" or isinstance(error, CRASHES):
            return
        said = (str(error) or type(error).__name__).strip().partition("\n")[0]
        self.failure = self.failure or f"{node.name}: {said}"


def main(seconds: int, tests: list[str]) -> None:
    # After this much processor time the kernel ends the process: the bug was not found in time.
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    watch = _Watch()
    names = [str(ROOT / name) for name in tests]
    # The first failure is enough, so it is not made smaller either.
    options = ["-n", "0", "-x", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    with contextlib.redirect_stdout(sys.stderr):
        pytest.main([*options, "--rootdir", str(ROOT), *names], plugins=[watch])
    found = watch.begun if watch.failure else None
    result = Found(str(emberkeep.__file__), found, shortened(watch.failure), time.process_time())
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
