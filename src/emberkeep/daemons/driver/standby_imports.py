"""Imports for a job before the job runs: the installed packages that its script, and its own modules, import.

The job's own files are read and parsed here, and never run: the job's attempt may not have begun. Only packages that
this Python has without the job's files are imported. Everything that is read or imported is bounded in number and size.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from emberkeep.base.errors import Fatal
from emberkeep.base.files.archive_entries import DAMAGED

LARGEST_FILE = 1024**2  # bytes of a file that is parsed; larger ones are left out
MOST_FILES = 500  # of the job's own files
MOST_NAMES = 2000  # that are imported


def import_for_job(script: str, module: str, places: Sequence[Path]) -> int:
    """Import what a job's program imports; see ``standby_messages.Import``. Return the number of imported names.

    An import that fails costs nothing: the script will try it again. Raises Fatal if the process must not become the
    job's driver, because it has now something else than the script would have imported.
    """
    own = OwnModules(places)
    guard = _OwnFirst(own)
    sys.meta_path.insert(0, guard)
    try:
        imported = sum(_import(name, members) for name, members in wanted_imports(script, module, own))
    finally:
        sys.meta_path.remove(guard)
    if guard.missed:
        raise Fatal(f"a package imports {guard.missed!r}, which the job's own files have as well")
    _require_no_spark()
    return imported


def _import(name: str, members: Sequence[str]) -> bool:
    """Import a module and those of ``members`` that are modules in it. Return True if that worked."""
    try:
        found = importlib.import_module(name)
        for member in members:
            if hasattr(found, "__path__") and not hasattr(found, member):
                with contextlib.suppress(ImportError):
                    importlib.import_module(f"{name}.{member}")
    except BaseException:  # noqa: BLE001 - even SystemExit: the script meets it when it imports this itself
        return False
    return True


def _require_no_spark() -> None:
    """Raise Fatal if a package has started Spark while it was imported: the script would find that."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if context is not None and context._active_spark_context is not None:
        raise Fatal("a package has started Spark while it was imported")


class _OwnFirst(MetaPathFinder):
    """Hides installed modules for which the job has modules of its own. ``missed``: the last one that was wanted."""

    def __init__(self, own: OwnModules) -> None:
        self._own = own
        self.missed = ""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if "." not in fullname and self._own.has(fullname):
            self.missed = fullname
            raise ModuleNotFoundError(f"{fullname} is one of the job's own modules", name=fullname)
        return None


class OwnModules:
    """The job's own modules: Python files in folders, packages and zip files."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._known: dict[str, bool] = {}  # the answers of ``has``
        # By os.path: what this user may not look at is not there, for the driver as well.
        self._folders = [place for place in places if os.path.isdir(place)]  # noqa: PTH112
        self._zips: list[tuple[Path, frozenset[str]]] = []
        for place in places:
            if os.path.isfile(place):  # noqa: PTH113
                with contextlib.suppress(OSError, *DAMAGED), zipfile.ZipFile(place) as archive:
                    self._zips.append((place, frozenset(archive.namelist())))

    def has(self, name: str) -> bool:
        """True if the job has a top-level module or package of this name.

        A folder without ``__init__.py`` is none: an installed module of that name comes first.
        """
        if name not in self._known:
            files = {f"{name}.py", f"{name}/__init__.py"}
            self._known[name] = any(names & files for _, names in self._zips) or any(
                any(os.path.isfile(folder / file) for file in files) or any(folder.glob(f"{name}.*.so"))  # noqa: PTH113
                for folder in self._folders
            )
        return self._known[name]

    def source(self, name: str) -> tuple[bytes, bool] | None:
        """Return the text of a module, and True if it is a package; None if the job has none, or it is too large."""
        stem = name.replace(".", "/")
        for path, is_package in ((f"{stem}/__init__.py", True), (f"{stem}.py", False)):
            for folder in self._folders:
                text = read_source(folder / path)
                if text is not None:
                    return text, is_package
            for place, names in self._zips:
                if path in names:
                    text = _read_zipped(place, path)
                    if text is not None:
                        return text, is_package
        return None


def read_source(path: Path) -> bytes | None:
    """Return a file's bytes; None if there is no such file, or it is too large."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError):
        return None
    return text if len(text) <= LARGEST_FILE else None


def _read_zipped(place: Path, path: str) -> bytes | None:
    try:
        with zipfile.ZipFile(place) as archive, archive.open(path) as file:
            text = file.read(LARGEST_FILE + 1)
    except (*DAMAGED, OSError):
        return None
    return text if len(text) <= LARGEST_FILE else None


def wanted_imports(script: str, module: str, own: OwnModules) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the modules that a program imports when it begins and that are not its own, with the names taken from each.

    Its own modules are followed.
    """
    waiting: list[tuple[str, bytes, bool]] = []  # own modules to parse: name, text, True for a package
    seen: set[str] = set()
    wanted: dict[tuple[str, tuple[str, ...]], None] = {}  # yielded

    def follow(name: str) -> None:
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            part = ".".join(parts[:length])
            if part not in seen and len(seen) < MOST_FILES:
                seen.add(part)
                found = own.source(part)
                if found is not None:
                    waiting.append((part, *found))

    if script:
        text = read_source(Path(script))
        waiting += [] if text is None else [("", text, False)]
    else:
        follow(module)
        follow(f"{module}.__main__")
    while waiting:
        name, text, is_package = waiting.pop(0)
        for imported, members in _imports_of(text, name if is_package else name.rpartition(".")[0]):
            is_new = (imported, members) not in wanted and len(wanted) < MOST_NAMES
            if is_new and not own.has(imported.partition(".")[0]):
                wanted[imported, members] = None
                yield imported, members
            follow(imported)
            for member in members:
                follow(f"{imported}.{member}")


def _imports_of(text: bytes, package: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what a module in ``package`` imports when it is imported: each module, with the names taken from it."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in _run_at_once(tree.body):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            if base:
                yield base, tuple(alias.name for alias in node.names if alias.name != "*")


def _run_at_once(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported: those outside of functions, in their order."""
    waiting: list[ast.AST] = list(reversed(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parts = ["body", "handlers", "orelse", "finalbody", "cases"]
        if isinstance(node, ast.If) and _is_for_type_checkers(node.test):
            parts = ["orelse"]
        waiting += reversed([inner for part in parts for inner in getattr(node, part, ())])


def _is_for_type_checkers(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the full name of the module that ``from … import`` names; "" if it is outside of the package."""
    if node.level == 0:
        return node.module or ""
    parts = package.split(".") if package else []
    if node.level > len(parts):
        return ""
    return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
