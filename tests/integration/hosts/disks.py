"""File systems of their own: one that all hosts mount, which can hang, and one of a single host, which can fail."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.integration.hosts.host import Host
from tests.integration.hosts.namespaces import Namespaces

_SHARED_SIZE, _LOCAL_SIZE = "2G", "1G"
_SECONDS = 60.0


def why_not() -> str:
    """Return why this machine has no block device for it; "" if it does."""
    tried = subprocess.run(["losetup", "--find"], capture_output=True, text=True, timeout=_SECONDS, check=False)
    return "" if tried.returncode == 0 else f"no loop device can be had here: {tried.stderr.strip()}"


@contextlib.contextmanager
def _device(image: Path, size: str) -> Iterator[str]:
    """Make a file system in ``image`` and lend a device for it, which is given back with its last mount.

    So nothing is left of a test that was killed.
    """
    for words in (("truncate", "--size", size, str(image)), ("mkfs.ext4", "-q", "-m", "0", str(image))):
        subprocess.run(words, timeout=_SECONDS, check=True)
    shown = subprocess.run(
        ["losetup", "--find", "--show", str(image)], capture_output=True, text=True, timeout=_SECONDS, check=True
    )
    device = shown.stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], timeout=_SECONDS, check=True)


class LocalDisk:
    """A disk of one host, mounted at ``path`` there, which belongs to a user."""

    def __init__(self, image: Path, host: Host, path: str, uid: int) -> None:
        with _device(image, _LOCAL_SIZE) as device:
            host.path(path).mkdir()
            host.namespaces.run("mount", "-o", "errors=remount-ro", device, path)
        os.chown(host.path(path), uid, uid)
        self._fault = Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error")

    def fail(self) -> None:
        """Let the kernel find an error in it: from now on it can only be read, through open files as well."""
        self._fault.write_text("an error for a test")


class SharedDisk:
    """``device`` is mounted by each host. ``path`` is its root directory as seen from outside."""

    def __init__(self, directory: Path) -> None:
        place = directory / "mounted"
        place.mkdir()
        with _device(directory / "shared-disk.img", _SHARED_SIZE) as self.device:
            mount = f"mount --make-rprivate / && mount {self.device} {place} && echo ready && exec sleep infinity"
            self._keeper = Namespaces(("mount",), ("sh", "-c", mount), {})
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
