"""File systems that never answer, as a mount whose server is away: FUSE without a process that serves it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

_DEVICE = Path("/dev/fuse")
_NEW_NAMESPACE = 0x20000  # CLONE_NEWNS, MS_REC, MS_PRIVATE and MNT_DETACH of Linux
_RECURSIVE, _PRIVATE = 0x4000, 0x40000
_DETACH = 2


def why_not() -> str:
    """Return why no such file systems can be had here; "" if they can."""
    if os.geteuid() != 0:
        return "file systems that hang need root"
    return "" if os.access(_DEVICE, os.W_OK) else f"file systems that hang need {_DEVICE}"


class HangingMounts:
    """Mounts at ``places``, for this process and its children only, so they end with it.

    Create it while the process has one thread, and only if there are any places does it need any rights.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = tuple(places)
        self._library = ctypes.CDLL(None, use_errno=True)
        if self.places:
            self._check(self._library.unshare(_NEW_NAMESPACE))
            self._check(self._library.mount(b"none", b"/", None, _RECURSIVE | _PRIVATE, None))
        self._servers = [self._mounted(place) for place in self.places]

    def end(self) -> None:
        """Fail the calls that hang, and show again what is below the mounts. Idempotent."""
        while self._servers:
            os.close(self._servers.pop())
            self._check(self._library.umount2(os.fsencode(self.places[len(self._servers)]), _DETACH))

    def _mounted(self, place: Path) -> int:
        server = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0,allow_other"
        self._check(self._library.mount(b"hanging", os.fsencode(place), b"fuse", 0, options.encode()))
        return server

    def _check(self, result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
