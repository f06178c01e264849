"""Find a declarative pipeline's specification, check it, and pack its project into one archive.

The specification has Spark's format (`spark-pipelines`). The driver reads it again with Spark's own code, so only
mistakes that would make the submission wrong are refused here.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from emberkeep.base.configuration.places import path_of, scheme_of
from emberkeep.base.configuration.yaml_documents import load_yaml
from emberkeep.base.errors import InvalidInput

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
MAX_FILES = 10_000
MAX_BYTES = 64 << 20
_LEFT_OUT = frozenset({"__pycache__", "spark-warehouse", "metastore_db", "derby.log", "node_modules", "venv"})
_OLDEST = (1980, 1, 1, 0, 0, 0)  # equal contents make equal archives, so that the cluster keeps one copy


@dataclass(frozen=True)
class PipelineProject:
    """A pipeline's project. ``spec``: path of its specification; the project is that file's directory."""

    spec: Path
    name: str
    configuration: Mapping[str, str]
    storage: str

    @property
    def directory(self) -> Path:
        return self.spec.parent


def find_project(spec: str | None, directory: Path) -> PipelineProject:
    """Return the project of the specification ``spec``, or of the nearest one in ``directory`` and above.

    If the specification is a symbolic link, the project is the directory that has the link, as in Spark.

    Raises InvalidInput: no specification, or one that cannot be used.
    """
    if spec is None:
        path = _nearest(directory)
    else:
        path = Path(spec)
        if not path.is_file():
            raise InvalidInput(f"the pipeline specification {spec} does not exist", field="--spec")
    return _read(path.parent.resolve() / path.name)


def pack(project: PipelineProject, target: Path) -> None:
    """Write the project's files into a zip archive at ``target``. Equal projects make equal archives.

    Hidden files, the pipeline's storage, and what Spark and Python leave behind stay out. Raises InvalidInput.
    """
    size = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, path in enumerate(_files(project), 1):
            name = path.relative_to(project.directory).as_posix()
            try:
                name.encode()
                if not path.is_file():  # reading a pipe would wait for its writer
                    raise InvalidInput(f"{path} is not a regular file", hint="keep only definitions there")
                with path.open("rb") as file:
                    data = file.read(MAX_BYTES - size + 1)
            except UnicodeEncodeError:
                raise InvalidInput(f"the name of {str(path)!r} is not UTF-8", hint="rename the file") from None
            except OSError as error:
                raise InvalidInput(f"cannot read {path}: {error.strerror}") from None
            size += len(data)
            if number > MAX_FILES or size > MAX_BYTES:
                raise InvalidInput(
                    f"the pipeline's project {project.directory} is too large: more than {MAX_FILES} files or "
                    f"{MAX_BYTES >> 20} MiB",
                    hint="keep only definitions there; data belongs in storage that all nodes reach",
                )
            entry = zipfile.ZipInfo(name, _OLDEST)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def _nearest(directory: Path) -> Path:
    for place in (directory, *directory.parents):
        found = [place / name for name in SPEC_NAMES if (place / name).is_file()]
        if len(found) > 1:
            raise InvalidInput(f"{place} has two pipeline specifications", hint="name one with --spec")
        if found:
            return found[0]
    raise InvalidInput(
        f"no {' or '.join(SPEC_NAMES)} in {directory} and above",
        field="--spec",
        hint="name the specification with --spec, or make a project: spark-pipelines init --name NAME",
    )


def _read(path: Path) -> PipelineProject:
    try:
        data = load_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidInput(f"cannot read the pipeline specification {path}: {error}") from None
    if not isinstance(data, dict):
        raise InvalidInput(f"the pipeline specification {path} is not a mapping", hint="it needs name and storage")
    name, storage = (_text(path, data, field) for field in ("name", "storage"))
    configuration = data.get("configuration") or {}
    if not isinstance(configuration, dict):
        raise InvalidInput(f"{path}: configuration is not a mapping", field="configuration")
    for key, value in configuration.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput(
                f"{path}: the value of {key!r} in configuration is not text", field="configuration", hint="quote it"
            )
    for pattern in _patterns(path, data.get("libraries") or []):
        if PurePosixPath(pattern).is_absolute() or ".." in PurePosixPath(pattern).parts:
            raise InvalidInput(
                f"{path}: {pattern!r} in libraries is outside of the project's directory",
                field="libraries",
                hint="only files below the specification's directory are sent to the cluster",
            )
    return PipelineProject(path, name, configuration, storage)


def _text(path: Path, data: Mapping[str, Any], field: str) -> str:
    value = data.get(field)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"the pipeline specification {path} has no {field}", field=field)
    return value


def _patterns(path: Path, libraries: Any) -> Iterator[str]:
    for entry in libraries if isinstance(libraries, list) else [libraries]:
        try:
            yield str(entry["glob"]["include"])
        except (TypeError, KeyError):
            raise InvalidInput(
                f"{path}: an entry of libraries is not of the form glob: {{include: PATTERN}}", field="libraries"
            ) from None


def _files(project: PipelineProject) -> Iterator[Path]:
    storage = _storage_directory(project.storage)
    for place, folders, files in os.walk(project.directory, followlinks=True):
        folders[:] = sorted(
            name
            for name in folders
            if _belongs(name) and os.path.realpath(Path(place, name)) != storage and not _leads_up(place, name)
        )
        yield from (Path(place, name) for name in sorted(files) if _belongs(name))


def _storage_directory(storage: str) -> str | None:
    """Return the pipeline's storage without symbolic links; None if it is not on this machine."""
    try:
        path = path_of(storage) if scheme_of(storage) == "file" else storage
    except ValueError:
        return None
    return os.path.realpath(path) if path.startswith("/") else None


def _leads_up(place: str, name: str) -> bool:
    """Return whether a folder is a symbolic link to one on the way to it, which would have no end."""
    path = Path(place, name)
    return path.is_symlink() and any(parent.resolve().is_relative_to(path.resolve()) for parent in path.parents)


def _belongs(name: str) -> bool:
    return not name.startswith(".") and name not in _LEFT_OUT
