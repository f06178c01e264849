"""The program of an attempt: the job's script or module, and the folders in which it finds modules beside it.

Python would import from the script's folder, or from the current directory with ``-m``. The program does so, too, but
not from folders that other users can write to: a module planted there would run as this user. Such a folder is named on
the job's standard error.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from emberkeep.base.import_path import RefusedFolder, why_unsafe
from emberkeep.daemons.records.driver_spec import DriverSpec
from emberkeep.jobs.model import ArtefactRole, EntryPointKind
from emberkeep.spark.script.runner import BodyEnded, ScriptOutcome, run_module, run_script

log = structlog.get_logger(__name__)

_HINT = "let only its owner write there, or pass modules with --py-files"


@dataclass(frozen=True)
class DriverProgram:
    """A job's script (``source`` is its checked text) or module, and where its modules may come from.

    - ``name``: the script's path, or the module's name.
    - ``beside``: True if the driver may import modules from the script's folder or, for a module, from the current
      directory.
    - ``folders``: folders that the Python workers may import from, where these exist on their nodes.
    - ``owner``: the user who owns the script or the module.
    """

    name: str
    source: bytes | None
    beside: bool
    folders: tuple[str, ...]
    owner: int

    def run(self, arguments: Sequence[str], ended: BodyEnded) -> ScriptOutcome:
        """Run the program in the main thread. ``ended``: see ``run_script``."""
        if self.source is None:
            return run_module(self.name, list(arguments), ended, beside=self.beside)
        return run_script(self.name, list(arguments), ended, source=self.source, beside=self.beside)


def find_program(spec: DriverSpec, directory: Path) -> DriverProgram:
    """Return the attempt's program, and report the folders that it must not use.

    ``directory``: the current directory. Raises OSError if the script's copy cannot be read.
    """
    entry_point = spec.graph.entry_point
    if entry_point.kind is EntryPointKind.MODULE:
        owner = _owner_of_module(entry_point.name, directory)
        folders = _safe_folders((directory,), owner)
        return DriverProgram(entry_point.name, None, bool(folders), folders, owner)
    path, source = _script(spec)
    owner = path.stat().st_uid
    beside = path.resolve().parent
    folders = _safe_folders((beside, directory), owner)
    return DriverProgram(str(path), source, str(beside) in folders, folders, owner)


def _safe_folders(folders: Sequence[Path], owner: int) -> tuple[str, ...]:
    """Return the folders to which only root, this user and ``owner`` can write. Report the others on standard error."""
    safe = []
    for folder in dict.fromkeys(map(str, folders)):
        reason = why_unsafe(folder, {owner})
        if reason:
            log.warning("a folder that other users can write is not used for imports", folder=folder, reason=reason)
            sys.stderr.write(f"emberkeep: warning: {RefusedFolder(folder, reason)} ({_HINT})\n")
        else:
            safe.append(folder)
    return tuple(safe)


def _owner_of_module(module: str, directory: Path) -> int:
    """Return the owner of the module's file in ``directory``; root if the module is elsewhere.

    A user who runs another user's module trusts that user.
    """
    first = directory / module.partition(".")[0]
    for path in (first, first.with_suffix(".py")):
        try:
            return path.stat().st_uid
        except OSError:
            continue
    return 0


def _script(spec: DriverSpec) -> tuple[Path, bytes]:
    """Return the path and text of the client's own file if this node has it unchanged, else of the copy.

    With the client's own file, the script can import modules beside it.
    """
    artefact = next(a for a in spec.graph.artefacts if a.role is ArtefactRole.SCRIPT)
    original = Path(spec.graph.entry_point.source_path)
    try:
        source = original.read_bytes()
        if hashlib.sha256(source).hexdigest() == artefact.sha256:
            return original, source
    except OSError as error:
        log.info("the script's own path is not on this node; using the copy", path=str(original), reason=str(error))
    copy = next(Path(file.path) for file in spec.files if file.role is ArtefactRole.SCRIPT)
    return copy, copy.read_bytes()
