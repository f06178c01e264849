"""Imports one module with a mutation, in this process only."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from tools.mutants.mutations import mutations
from tools.mutants.packages import ROOT


class _Loader(SourceFileLoader):
    """Compiles the changed tree. Reads and writes no bytecode files."""

    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, loader: _Loader) -> None:
        self._loader = loader

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._loader.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self._loader.path, loader=self._loader)


def spoil(file: Path, number: int) -> None:
    """Let this process import ``file`` with its mutation ``number``. Call before the module is imported."""
    name = module_name(file)
    assert name not in sys.modules, f"{name} is imported already"
    tree = ast.parse(file.read_text(encoding="utf-8"))
    list(mutations(tree))[number].apply()
    sys.meta_path.insert(0, _Finder(_Loader(name, str(file), ast.fix_missing_locations(tree))))


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
