"""The packages whose mutants are tried, and the fast tests that must fail with them, cheapest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SIMULATION = ("tests/simulation/test_cluster.py", "tests/simulation/test_planted_decisions.py")
# Only checked, never asked for a decision: they are the tests' oracle.
_ORACLES = ("invariants.py", "server_invariants.py", "__init__.py")


@dataclass(frozen=True)
class Package:
    """``modules``: folders or files in src/emberkeep. ``stages``: tests; a mutant that one misses meets the next."""

    modules: tuple[str, ...]
    stages: tuple[tuple[str, ...], ...]

    def files(self) -> Iterator[Path]:
        for name in self.modules:
            path = ROOT / "src/emberkeep" / name
            found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
            yield from (file for file in found if file.name not in _ORACLES)


def _unit(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/unit/{name}" for name in names)


def _property(*names: str) -> tuple[str, ...]:
    return tuple(f"tests/property/{name}" for name in names)


PACKAGES = {
    "jobs": Package(
        ("jobs",),
        (
            _unit("jobs"),
            _property("test_job_machine.py"),
            (*_unit("jobmanager", "adapters/job_store", "daemons"), *_SIMULATION),
        ),
    ),
    "blobs": Package(
        ("blobs",),
        (
            (*_unit("blobs"), *_property("blobs/test_server_machine.py", "blobs/test_cache_machine.py")),
            (*_unit("jobmanager/blobs", "taskmanager", "adapters/blobs"), *_SIMULATION[:1]),
        ),
    ),
    "blocklist": Package(
        ("blocklist",),
        (
            (*_unit("blocklist"), *_property("test_blocklist.py")),
            (*_unit("jobmanager", "jobmaster", "spark/executors"), "tests/simulation/test_blocklist.py"),
        ),
    ),
    "leadership": Package(
        ("leadership",), (_unit("leadership"), _property("test_leadership.py"), _unit("jobmanager/test_contender.py"))
    ),
    "local_state": Package(
        ("local_state",),
        (_unit("local_state"), _property("test_local_state_machine.py"), _unit("taskmanager", "adapters/state")),
    ),
    "slots": Package(
        ("slots",),
        (
            _unit("slots"),
            _property("slots"),
            (*_unit("jobmanager", "jobmaster", "taskmanager"), *_SIMULATION),
        ),
    ),
    "notifications": Package(("notifications",), (_unit("notifications"), _unit("adapters/webhooks"))),
    "log_records": Package(("log_records",), (_unit("log_records"), _property("test_log_records.py"))),
    "usage": Package(("usage",), (_unit("usage"),)),
    "watchdog": Package(("watchdog",), (_unit("watchdog"), _property("test_watchdog.py"))),
    "stopping": Package(
        (
            "lifecycle",
            "spark/stopping/limit.py",
            "spark/stopping/planned_batch.py",
            "spark/stopping/running_batch.py",
            "spark/stopping/savepoint_files.py",
        ),
        (
            (*_unit("lifecycle"), *_property("test_procedure_machine.py")),
            (*_unit("jobmaster", "spark"), "tests/simulation/test_procedures.py"),
        ),
    ),
    "jobmanager": Package(
        ("jobmanager",),
        (
            _unit("jobmanager"),
            ("tests/simulation/test_cluster.py", "tests/simulation/test_procedures.py"),
            (*_unit("rest", "daemons", "adapters/shared_storage"), *_SIMULATION[1:], "tests/simulation/safety"),
        ),
    ),
}
