"""What this machine must have for hosts that consist of namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[3]
_TOOLS = ("ip", "tc", "nft", "unshare", "nsenter", "setpriv")
_SECONDS = 30.0


def why_not() -> str:
    """Return why no hosts can be made here; "" if they can."""
    if os.geteuid() != 0:
        return "hosts that consist of namespaces need root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"hosts that consist of namespaces need {', '.join(missing)}: `make host-tools` installs them"
    if CHECKOUT.is_relative_to("/mnt"):
        return "hosts that consist of namespaces have file systems of their own at /mnt, where this checkout is"
    # Containers often forbid namespaces or mounts, and some kernels lack parts of the network.
    script = (
        "mount --make-rprivate / && mount -t tmpfs mounts /mnt && mkdir /mnt/upper /mnt/work"
        " && mount -t overlay etc -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc"
        " && ip link add left type veth peer name right && ip link add switch type bridge"
        " && nft 'add table netdev probe; add chain netdev probe left"
        ' { type filter hook ingress device "left" priority 0; }\''
    )
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script],
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    return "" if tried.returncode == 0 else f"namespaces cannot be used here: {tried.stderr.decode().strip()}"


def fake_clock() -> Path | None:
    """Return the library that shifts a process's clock; None if it is not installed."""
    return next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
