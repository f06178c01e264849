"""Check a script before it is sent, to report errors that would end the job in its first second.

This neither runs nor imports any part of the script.
"""

from __future__ import annotations

import importlib.machinery
import sys
import traceback
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from emberkeep.base.errors import InvalidInput
from emberkeep.base.files.archive_entries import DAMAGED
from emberkeep.client.submission.job_files import check_local_file

_JVM_SUFFIXES = (".jar", ".scala", ".java")
_R_SUFFIXES = (".r",)


def check_script(script: str, main_class: str | None) -> Path:
    """Return the absolute path of a script that can be sent.

    Raises InvalidInput. For a syntax error, the message is Python's own.
    """
    if main_class is not None:
        raise InvalidInput(
            "--class is for Java and Scala applications",
            field="--class",
            hint="Emberkeep runs PySpark scripts; put jars that a script uses in --jars",
        )
    if script.startswith("file:"):
        script = unquote(urlsplit(script).path)
    suffix = Path(script).suffix.lower()
    if suffix in (*_JVM_SUFFIXES, *_R_SUFFIXES):
        language = "R" if suffix in _R_SUFFIXES else "Java or Scala"
        raise InvalidInput(
            f"{script}: {language} applications are not supported",
            field="script",
            hint="Emberkeep runs PySpark scripts; put jars that a script uses in --jars",
        )
    if "://" in script:
        raise InvalidInput(f"{script}: the script must be a local file", field="script", hint="download it first")
    path = Path(script)
    check_local_file("script", path)
    check_syntax(path, path.read_bytes())
    return path.absolute()


def check_syntax(path: Path, source: bytes) -> None:
    """Compile without running. Raises InvalidInput with file, line and caret as Python prints them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        shown = "".join(traceback.format_exception_only(error)).rstrip()
        raise InvalidInput(f"the script does not compile:\n{shown}", field="script") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InvalidInput(
            f"{path} is not Python source: {error}", field="script", hint="check that this is the file you mean"
        ) from None


def check_module(module: str, directory: Path, py_files: Sequence[Path]) -> str | None:
    """Look for the module of ``-m`` where the driver will look.

    Returns a notice if it is not found on this machine, else None. Raises InvalidInput: not a module's name, or a
    syntax error in the module.
    """
    if not all(part.isidentifier() for part in module.split(".")):
        raise _no_module(module)
    source = _find_source(module, directory, py_files)
    if source is not None:
        check_syntax(*source)
        return None
    if _find_installed(module):
        return None
    if (directory / module).is_file():
        raise _no_module(module)
    return f"module {module} was not found on this machine; it must be installed on the cluster's nodes"


def _no_module(name: str) -> InvalidInput:
    hint = f"to run a file leave out -m: {name}" if name.endswith(".py") else "for example -m package.module"
    return InvalidInput(
        f"-m {name or repr(name)}: not a module's name", field="-m", hint=f"-m takes a dotted name; {hint}"
    )


def _find_source(module: str, directory: Path, py_files: Sequence[Path]) -> tuple[Path, bytes] | None:
    """Return the path and text of the module's file; None if it is not in the working directory or ``--py-files``."""
    names = [f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__main__.py"]
    for name in names:
        if (directory / name).is_file():
            return directory / name, (directory / name).read_bytes()
    for file in py_files:
        if file.name == names[0]:
            return file, file.read_bytes()
        if zipfile.is_zipfile(file):
            try:
                with zipfile.ZipFile(file) as archive:
                    for name in set(names) & set(archive.namelist()):
                        return file / name, archive.read(name)
            except (*DAMAGED, OSError) as error:
                raise InvalidInput(
                    f"--py-files: {file} cannot be read as a zip file: {error}",
                    field="--py-files",
                    hint="pack it again",
                ) from None
    return None


def _find_installed(module: str) -> bool:
    """True if Python could import the module here. Unlike importlib.util.find_spec, this imports no parent packages."""
    path: Sequence[str] | None = sys.path
    for part in module.split("."):
        spec = importlib.machinery.PathFinder.find_spec(part, path)
        if spec is None:
            return part in sys.builtin_module_names
        path = spec.submodule_search_locations
    return True
