"""`emberkeep prepare` when somebody does not want to wait for it."""

import pytest

from emberkeep.daemons import prepare


def test_an_interrupt_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "find_java", interrupted)
    assert prepare.main() == 130
    assert capsys.readouterr() == ("", "")
