"""A process whose namespaces live as long as it does, and commands in them."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_SECONDS = 60.0


class Namespaces:
    """The namespaces of one process, ``pid``. The kernel removes them with the last process in them.

    If the process that has made them ends in whichever way, the kernel kills ``pid``, and with it all processes in its
    pid namespace. So nothing is left of a test that was killed.
    """

    def __init__(
        self, kinds: Sequence[str], command: Sequence[str], environment: Mapping[str, str], under: Sequence[str] = ()
    ) -> None:
        """``command`` prints a line when it is ready. Fails if it does not.

        ``under``: the words of a program that gets all others as arguments, and becomes them.
        """
        words = [*under, "setpriv", "--pdeathsig", "KILL", "unshare", *(f"--{kind}" for kind in kinds)]
        words += ["--mount-proc"] if "pid" in kinds else []
        self._keeper = subprocess.Popen(
            [*words, "--fork", "--kill-child=SIGKILL", *command],
            env={"PATH": os.environ["PATH"], **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._enter = tuple(f"--{kind}" for kind in kinds)
        try:
            self.pid = self._ready()
        except BaseException:
            self._keeper.kill()
            self._close()
            raise

    def _ready(self) -> int:
        assert self._keeper.stdout is not None
        assert self._keeper.stderr is not None
        ready, _, _ = select.select([self._keeper.stdout], [], [], _SECONDS)
        if not ready or not self._keeper.stdout.readline():
            self._keeper.kill()
            raise AssertionError(f"namespaces were not made: {self._keeper.stderr.read().decode()}")
        (child,) = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children").read_text().split()
        return int(child)

    @property
    def are_alive(self) -> bool:
        return self._keeper.poll() is None

    @property
    def root(self) -> Path:
        """The root directory as processes in these namespaces see it."""
        return Path(f"/proc/{self.pid}/root")

    def enter(self, *words: str) -> list[str]:
        """Return a command that runs ``words`` in these namespaces."""
        return ["nsenter", f"--target={self.pid}", *self._enter, "--", *words]

    def run(self, *words: str, given: str = "") -> str:
        """Run a command that must succeed; return its output."""
        done = subprocess.run(
            self.enter(*words), input=given, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        assert done.returncode == 0, f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def kill(self) -> None:
        """SIGKILL to the process, and wait until the kernel has ended all others in its pid namespace."""
        if self.are_alive:
            os.kill(self.pid, signal.SIGKILL)
        self._close()

    def _close(self) -> None:
        self._keeper.wait(_SECONDS)
        for stream in (self._keeper.stdout, self._keeper.stderr):
            if stream is not None:
                stream.close()
