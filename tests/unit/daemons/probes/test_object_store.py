"""Trying an object store, with one of real files."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from obstore.exceptions import PermissionDeniedError
from obstore.store import LocalStore

from emberkeep.daemons.probes import object_store as module
from emberkeep.daemons.probes.object_store import try_object_store
from emberkeep.diagnosis.object_store import ObjectStep


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


@pytest.mark.parametrize("refused", ["list", "copy", None])
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str | None) -> None:
    def refuse(*_: object, **__: object) -> None:
        assert files(tmp_path), "it was written"
        raise PermissionDeniedError("access denied")

    monkeypatch.setattr(module, "open_object_store", lambda _: LocalStore(tmp_path))
    if refused is not None:
        monkeypatch.setattr(obstore, refused, refuse)

    facts = try_object_store("s3://bucket/place", "checkpoints")

    assert files(tmp_path) == []
    steps = {"list": [ObjectStep.LIST], "copy": [ObjectStep.COPY_ONCE], None: []}
    assert [problem.step for problem in facts.problems] == steps[refused]
