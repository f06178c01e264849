"""How Slurm's commands are run: what they get, and what it means if they cannot be run."""

from __future__ import annotations

import asyncio
import errno
import os
from typing import NoReturn

import pytest

from emberkeep.adapters.slurm.commands import SlurmCommands
from emberkeep.base.errors import Unavailable


async def test_a_script_with_a_path_that_is_not_utf_8_is_sent_as_it_is() -> None:
    commands = SlurmCommands("", 30.0, os.environ)
    printed = await commands.change("od", "-An", "-tx1", script=os.fsdecode(b"/state-\xff"))
    assert printed.split()[-1] == "ff"


@pytest.mark.parametrize(("code", "what"), [(errno.EMFILE, "ulimit -n"), (errno.EAGAIN, "ulimit -u")])
async def test_a_want_of_descriptors_or_processes_may_pass(
    monkeypatch: pytest.MonkeyPatch, code: int, what: str
) -> None:
    async def refused(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    with pytest.raises(Unavailable, match="cannot run squeue now") as raised:
        await SlurmCommands("", 30.0, os.environ).read("squeue")
    assert what in (raised.value.hint or "")
