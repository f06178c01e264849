"""Messages between the script's own output."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest

from emberkeep.spark.notices import Notices


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [FullDisk(), closed(), None, object()])
def test_a_message_that_cannot_be_written_does_not_fail_the_query_that_it_is_about(
    monkeypatch: pytest.MonkeyPatch, stream: Any
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    Notices().say("the query starts from the savepoint")


def test_each_message_appears_once(capsys: pytest.CaptureFixture[str]) -> None:
    notices = Notices()
    for text in ("one", "two", "one"):
        notices.say(text)
    assert capsys.readouterr().err == "emberkeep: one\nemberkeep: two\n"
