"""A file system that all hosts mount, and that can be made to answer nothing, as a hung file server does."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.integration.hosts.namespaces import Namespaces

_SIZE = "2G"
_SECONDS = 60.0


def why_not() -> str:
    """Return why this machine has no block device for it; "" if it does."""
    tried = subprocess.run(["losetup", "--find"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    return "" if tried.returncode == 0 else f"no loop device can be had here: {tried.stderr.strip()}"


class SharedDisk:
    """``device`` is mounted by each host. ``path`` is its root directory as seen from outside."""

    def __init__(self, directory: Path) -> None:
        image, place = directory / "shared-disk.img", directory / "mounted"
        place.mkdir()
        for words in (("truncate", "--size", _SIZE, str(image)), ("mkfs.ext4", "-q", "-m", "0", str(image))):
            subprocess.run(words, timeout=_SECONDS, check=True)
        shown = subprocess.run(
            ["losetup", "--find", "--show", str(image)], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
        self.device = shown.stdout.strip()
        mount = f"mount --make-rprivate / && mount {self.device} {place} && echo ready && exec sleep infinity"
        try:
            self._keeper = Namespaces(("mount",), ("sh", "-c", mount), {})
        finally:
            # The kernel gives the device back with its last mount, so nothing is left of a test that was killed.
            subprocess.run(["losetup", "--detach", self.device], timeout=_SECONDS, check=True)
        self._place = place
        self.path = self._keeper.root / str(place).lstrip("/")
        self.path.chmod(0o777)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Let everything that writes there wait until the end of the context."""
        self._keeper.run("fsfreeze", "--freeze", str(self._place))
        try:
            yield
        finally:
            self._keeper.run("fsfreeze", "--unfreeze", str(self._place))

    def close(self) -> None:
        self._keeper.kill()
