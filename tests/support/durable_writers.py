"""Which modules of the product write durably, and which of them components make do so.

A module that writes durably uses ``base.files.durable`` or ``base.files.operations``, syncs files by itself, or gives
files another name. What writes only through such a module need not be listed: its order of steps is tried with it.
"""

from __future__ import annotations

import ast
import contextlib
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import emberkeep
from emberkeep.base.errors import EmberkeepError
from tests.support.crashes.component import Component
from tests.support.crashes.followed import FollowedFiles
from tests.support.crashes.observed import observed

_SOURCES = Path(emberkeep.__file__).parent
_LAYER = "emberkeep.base.files."  # is what components are tried with
_DURABLE = frozenset(
    {
        "write_file",
        "create_file",
        "write_record",
        "give_new_name",
        "make_directories",
        "remove_leftovers",
        "sync_directory",
    }
)
_SYNCS = frozenset({"fsync", "fdatasync", "syncfs"})

_NO_PROMISE = "what a crash leaves of it is not used, and it is made again: "
EXCEPTIONS: Final = {
    "adapters.shared_storage.event_log_copier": f"{_NO_PROMISE}copies for a History Server",
    "adapters.shared_storage.event_logs": "only tries whether Spark could write an event log",
    "adapters.webhdfs.port": "tried as the gateway's port: it hands its write to a thread",
    "cli.system.files": "units of the operating system, which an administrator writes again",
    "client.clusters.run_directories": f"{_NO_PROMISE}a directory of one run",
    "daemons.jobmanager.resource_drivers.settings_handed_on": f"{_NO_PROMISE}by each leader",
    "daemons.probes.storage": "tries whether a storage can do what is asked of it",
    "daemons.taskmanager.local_state_roots": "moves copies of the release before; lost ones are read again",
    "daemons.taskmanager.standby_takes": f"{_NO_PROMISE}the output of a process that runs",
    "spark.jvm.class_archive": f"{_NO_PROMISE}an archive whose record does not fit",
    "spark.jvm.history_server": f"{_NO_PROMISE}settings of a process that is started next",
    "spark.jvm.zookeeper_server": f"{_NO_PROMISE}settings of a process that is started next",
    "taskmanager.libraries.archives": f"{_NO_PROMISE}the record names the boot in which an archive was unpacked",
}


def durable_writers() -> set[str]:
    """Return the names of the modules that write durably, without "emberkeep."."""
    return {
        ".".join(path.relative_to(_SOURCES).with_suffix("").parts)
        for path in _SOURCES.rglob("*.py")
        if not path.is_relative_to(_SOURCES / "base" / "files") and _writes(ast.parse(path.read_text()))
    }


def _writes(module: ast.Module) -> bool:
    return any(_is_durable(node) for node in ast.walk(module))


def _is_durable(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        names = {alias.name for alias in node.names}
        return node.module == f"{_LAYER}operations" or (node.module == f"{_LAYER}durable" and bool(names & _DURABLE))
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    is_path_renamed = node.func.attr == "rename" and len(node.args) == 1 and not node.keywords
    return node.func.attr in _SYNCS or is_path_renamed


class _Witness(FollowedFiles):
    """Notes the modules of the product that take a step."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.modules: set[str] = set()
        super().__init__(*arguments, **options)

    def _before_step(self) -> None:
        super()._before_step()
        frame = sys._getframe()
        while frame is not None:
            self.modules.add(frame.f_globals.get("__name__", ""))
            frame = frame.f_back  # type: ignore[assignment]


def modules_at_work(components: Collection[Component], scratch: Path) -> set[str]:
    """Return the modules that take durable steps while these components live, without "emberkeep."."""
    found: set[str] = set()
    for number, component in enumerate(components):
        root = scratch / str(number) / "whole"
        root.mkdir(parents=True)
        component.given(root)
        witness = _Witness(root, remembers=False)
        with observed(witness), contextlib.suppress(EmberkeepError):
            component.live(root, witness)
        found |= witness.modules
    return {name.removeprefix("emberkeep.") for name in found if name.startswith("emberkeep.")}
