"""What every test gets."""

import gc
import signal
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from xdist.scheduler import LoadFileScheduling

from tests.campaign import CAMPAIGN, FOUND, NOT_BEGUN, begin_campaign, begin_file, examples, is_over, place
from tests.open_sessions import left_open, watch_sessions
from tests.support.kernel.children import forgotten

# The same examples each time, so that a change is judged by what it changes; a campaign looks for new ones.
# No deadlines: how long an example takes says how busy the machine is.
settings.register_profile("usual", derandomize=True, deadline=None, max_examples=examples(50), print_blob=True)
settings.register_profile(
    "campaign",
    derandomize=False,
    deadline=None,
    database=DirectoryBasedExampleDatabase(FOUND / "examples"),
    max_examples=examples(50),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("usual" if CAMPAIGN is None else "campaign")

TOLERATED = "tolerated"  # the property of a test that says what it got over

# Integration tests that take longest begin first, so that all workers are busy until the end.
BEGIN_FIRST = (
    "test_job_manager_failover", "test_driver_runtime", "test_stop", "test_failures", "test_zookeeper_store",
    "test_state_gateway_client", "test_processes", "test_object_blobs", "test_run_embedded", "test_logs",
    "test_scripts", "test_task_manager_moves", "test_class_archives", "test_job_files", "test_killed_runs",
    "test_bad_environment", "test_object_state", "test_savepoint_storage", "test_local_cluster", "test_run_as",
    "test_zookeeper_election", "test_drivers_that_cannot_start", "test_blob_place", "test_logs_of_lost_nodes",
    "test_encrypted_links", "test_equal_addresses", "test_encrypted_zookeeper", "test_zookeeper_away_for_good",
    "test_zookeeper_paths",
)  # fmt: skip


def pytest_configure() -> None:
    """Let Ctrl-C work in tests and in what they start. Show logged errors with plain tracebacks."""
    # A shell without job control starts background jobs with SIGINT ignored.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The usual one draws all local variables, which takes a second for each logged error.
    structlog.dev.ConsoleRenderer.get_active().exception_formatter = structlog.dev.plain_traceback
    begin_campaign()
    watch_sessions()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Take what was collected, which stays until the end, from what the garbage collector looks through each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test after the campaign's time."""
    if is_over():
        pytest.skip(NOT_BEGUN)
    if CAMPAIGN is not None and _is_integration(item):
        begin_file(_file(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Fail a test that leaves an HTTP session open when its event loop has ended, or pids of children that are gone."""
    yield
    if pids := forgotten():
        pytest.fail(f"nobody forgot these children, which are gone: {pids}; see children.reap", pytrace=False)
    if places := left_open():
        pytest.fail(f"{len(places)} HTTP sessions were left open; the first was made here:\n{places[0]}", pytrace=False)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Emberkeep runs on asyncio; no second event loop is supported."""
    return "asyncio"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Give whole files to the workers, in the order below."""
    return LoadFileScheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests got over: a passed test that tried again says so here. Count what did not begin in time."""
    reports = [report for name in ("passed", "failed") for report in terminalreporter.stats.get(name, [])]
    notes = [(report.nodeid, text) for report in reports for name, text in report.user_properties if name == TOLERATED]
    if notes:
        terminalreporter.section("tried again")
    for test, text in notes:
        terminalreporter.write_line(f"{test}: {text}")
    not_begun = sum(NOT_BEGUN in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if not_begun:
        terminalreporter.section("not begun")
        terminalreporter.write_line(
            f"The campaign's time was over before {not_begun} tests began. The next campaign begins with them; "
            "MINUTES=0 sets no bound."
        )


def pytest_report_header() -> str | None:
    """Name the campaign's seed: it repeats the campaign."""
    return None if CAMPAIGN is None else f"campaign: {CAMPAIGN} (make test-long CAMPAIGN={CAMPAIGN} repeats it)"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select what a usual run or a campaign runs. What fails fast fails first."""
    if CAMPAIGN is None and config.option.markexpr.strip() == "long":
        raise pytest.UsageError("long tests belong to a campaign: set EMBERKEEP_CAMPAIGN=<any number> for pytest")
    chosen = [item for item in items if _belongs(item)]
    config.hook.pytest_deselected(items=[item for item in items if not _belongs(item)])
    chosen.sort(key=_place)
    items[:] = chosen


def _is_usual(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is None


def _belongs(item: pytest.Item) -> bool:
    if CAMPAIGN is None:
        return _is_usual(item)
    return any(item.get_closest_marker(name) for name in ("long", "campaign", "hypothesis"))


def _place(item: pytest.Item) -> tuple[bool, tuple[float, float]]:
    """Fast tests, then integration tests: the longest files first, or in the campaign's order."""
    if not _is_integration(item):
        return False, (0, 0)
    if CAMPAIGN is not None:
        return True, place(_file(item))
    name = item.path.stem
    return True, (BEGIN_FIRST.index(name) if name in BEGIN_FIRST else len(BEGIN_FIRST), 0)


def _is_integration(item: pytest.Item) -> bool:
    return item.nodeid.startswith("tests/integration/")


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition(".py::")[0]
