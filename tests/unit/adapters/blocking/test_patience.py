"""The wait for file systems is limited, whatever happens to the thread that waits."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import NoReturn

import pytest

from emberkeep.adapters.blocking.patience import FilePatience
from emberkeep.base.errors import Unavailable


def test_a_process_that_may_have_no_more_threads_cannot_read_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    patience = FilePatience()
    with monkeypatch.context() as few:
        few.setattr(threading.Thread, "start", refused)
        with pytest.raises(Unavailable, match="cannot be read now: no thread can be started") as raised:
            patience.run(tmp_path, tmp_path.exists)
    assert "ulimit -u" in (raised.value.hint or "")
    assert patience.run(tmp_path, tmp_path.exists)
