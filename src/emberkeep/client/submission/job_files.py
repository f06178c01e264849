"""The files that a job needs, found and named as spark-submit does: comma lists, globs, ``file#alias``."""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from emberkeep.base.errors import InvalidInput
from emberkeep.jobs.model import FILE_OPTIONS, Artefact, ArtefactRole

_WITH_ALIAS = frozenset({ArtefactRole.FILE, ArtefactRole.ARCHIVE})
_REMOTE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class JobFile:
    """A local file of the job. ``fragment`` is the alias after ``#``."""

    role: ArtefactRole
    path: Path
    fragment: str = ""

    def artefact(self) -> Artefact:
        """Return the file as an artefact, with its hash. Raises InvalidInput if the file cannot be read."""
        digest, size = hash_file(self.path)
        name, fragment = self.path.name, self.fragment
        if self.role is ArtefactRole.FILE and fragment:
            # Outside YARN, Spark fails on an alias of a plain file, so the file is sent with the alias as its name.
            name, fragment = fragment, ""
        return Artefact(role=self.role, name=name, sha256=digest, size=size, fragment=fragment)


@dataclass(frozen=True)
class FileList:
    """One option's files: local ones to upload, and addresses that Spark fetches itself (hdfs:, https:, local:, …)."""

    local: tuple[JobFile, ...]
    remote: tuple[str, ...]


def parse_file_list(role: ArtefactRole, text: str) -> FileList:
    """Parse a comma-separated list.

    Raises InvalidInput if a file is missing or unreadable, is a directory, or has an ambiguous alias, or if two files
    have the same name.
    """
    local: dict[tuple[Path, str], JobFile] = {}
    remote = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        if _REMOTE.match(entry) and not entry.startswith("file:"):
            remote.append(entry)
            continue
        for file in _expand(role, entry):
            local.setdefault((file.path, file.fragment), file)  # two aliases of a file are two files of the job
    files = tuple(local.values())
    _refuse_equal_names(role, files)
    return FileList(files, tuple(remote))


def check_local_file(option: str, path: Path) -> None:
    """Raise InvalidInput unless ``path`` is a file that can be read."""
    try:
        exists = path.exists()
    except OSError as error:  # a folder may not be entered, or a name is too long
        raise InvalidInput(f"{option}: cannot read {path}: {error.strerror}", field=option) from None
    if not exists:
        raise InvalidInput(f"{option}: {path} does not exist", field=option, hint=_looked_in(path))
    if path.is_dir():
        raise InvalidInput(f"{option}: {path} is a directory", field=option, hint=_directory_hint(option, path))
    if not path.is_file():
        raise InvalidInput(f"{option}: {path} is not a regular file", field=option)
    try:
        path.open("rb").close()
    except OSError as error:
        raise InvalidInput(f"{option}: cannot read {path}: {error.strerror}", field=option) from None


def hash_file(path: Path) -> tuple[str, int]:
    """Return the SHA-256 (64 hex digits) and the size in bytes. Raises InvalidInput."""
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
    return digest.hexdigest(), size


def _expand(role: ArtefactRole, entry: str) -> Iterator[JobFile]:
    """Yield the files that one entry of a list names."""
    option, _ = FILE_OPTIONS[role]
    pattern, alias = _split_alias(role, entry)
    path = Path(pattern)
    matches = sorted(_glob(pattern)) if glob.has_magic(pattern) and not _exists(path) else [path]
    if not matches:
        raise InvalidInput(f"{option}: nothing matches {pattern}", field=option, hint=_looked_in(path))
    if alias and len(matches) > 1:
        raise InvalidInput(f"{option}: {pattern} matches {len(matches)} files, so #{alias} is ambiguous", field=option)
    for match in matches:
        check_local_file(option, match)
        yield JobFile(role, match.absolute(), alias)


def _exists(path: Path) -> bool:
    """False also if that cannot be told: ``check_local_file`` says why."""
    try:
        return path.exists()
    except OSError:
        return False


def _glob(pattern: str) -> Iterator[Path]:
    return map(Path, glob.iglob(pattern))  # noqa: PTH207 - Path.glob takes no absolute patterns


def _split_alias(role: ArtefactRole, entry: str) -> tuple[str, str]:
    if entry.startswith("file:"):
        parts = urlsplit(entry)
        pattern, alias = unquote(parts.path), unquote(parts.fragment)
    elif role not in _WITH_ALIAS or _exists(Path(entry)):
        return entry, ""
    else:
        pattern, _, alias = entry.partition("#")
    if "/" in alias or alias in (".", ".."):
        option, _ = FILE_OPTIONS[role]
        raise InvalidInput(f"{option}: #{alias} must be a plain name", field=option, hint="for example data.zip#data")
    return pattern, alias


def _refuse_equal_names(role: ArtefactRole, files: tuple[JobFile, ...]) -> None:
    seen: dict[str, JobFile] = {}
    for file in files:
        name = file.fragment or file.path.name
        if name in seen:
            option, _ = FILE_OPTIONS[role]
            hint = "rename one of them" if role not in _WITH_ALIAS else "give one an alias: path#name"
            raise InvalidInput(
                f"{option}: {seen[name].path} and {file.path} would both be called {name}", field=option, hint=hint
            )
        seen[name] = file


def _looked_in(path: Path) -> str:
    return "check the path" if path.is_absolute() else f"looked in {Path.cwd()}"


def _directory_hint(option: str, path: Path) -> str:
    if option == "--py-files":
        packed = f"{path.name}.zip"
        return f"pack it as a zip file: (cd {path.parent} && zip -r {packed} {path.name}), then --py-files {packed}"
    if option == "--archives":
        return f"pack the directory: tar czf {path.name}.tar.gz -C {path} ."
    if option in ("--jars", "--files"):
        return f"name the files in the directory: '{path}/*'"
    return "name the script file itself, or use -m for a package"
