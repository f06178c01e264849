"""A virtual machine with Debian's kernel and the programs of this machine, for what this machine's kernel cannot do.

It is emulated, so it works without hardware for it, and is some twenty times slower.
"""

from __future__ import annotations

import gzip
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[3]
_PARTS = Path(sys.prefix) / "guest"  # by tools/ensure-guest.sh
_BOOT = Path(__file__).with_name("boot_guest.sh")
_DRIVERS = (
    *("virtio", "virtio_ring", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk"),
    *("netfs", "fscache", "9pnet", "9pnet_virtio", "9p", "overlay"),
    *("crc16", "crc32c_generic", "mbcache", "jbd2", "ext4"),
)
_MACHINE = ("-accel", "tcg,thread=multi", "-cpu", "max", "-m", "3G", "-smp", "2")
_DISK_BYTES = 1 << 30
_FILE, _PROGRAM, _DIRECTORY = 0o100644, 0o100755, 0o040755


def why_not() -> str:
    """Return why there can be none here; "" if there can."""
    if platform.machine() != "x86_64":
        return "the virtual machine runs this machine's programs, which must be those of x86-64"
    missing = [tool for tool in ("qemu-system-x86_64", "mkfs.ext4") if shutil.which(tool) is None]
    if missing or not (_PARTS / "busybox").exists():
        return f"a virtual machine needs {', '.join(missing) or 'a kernel'}: `make guest`"
    return ""


def run(command: str, directory: Path, seconds: float) -> tuple[int, str]:
    """Run a command of a shell in a new machine, in the checkout. Return its exit code, and what it prints.

    ``directory``: for the machine's files. Fails if it does not end in time.
    """
    first, disk = directory / "first-files", directory / "disk"
    first.write_bytes(gzip.compress(_archive(command), 1))
    with disk.open("wb") as file:
        file.truncate(_DISK_BYTES)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", str(disk)], check=True, timeout=60)
    (kernel,) = (_PARTS / "boot").glob("vmlinuz-*")
    words = ["qemu-system-x86_64", *_MACHINE, "-nographic", "-no-reboot", "-net", "none"]
    words += ["-kernel", str(kernel), "-initrd", str(first), "-append", "console=ttyS0 panic=-1 quiet rdinit=/init"]
    words += ["-drive", f"file={disk},format=raw,if=virtio,cache=unsafe"]
    words += ["-virtfs", "local,path=/,mount_tag=around,security_model=none,readonly=on,multidevs=remap"]
    said = directory / "console"
    with said.open("wb") as console:
        try:
            subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=console, stderr=console, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"not within {seconds:g} s:\n{_text(said)}") from None
    ended = re.search(r"guest: exit code (\d+)", _text(said))
    assert ended is not None, _text(said)
    return int(ended[1]), _text(said)


def _text(said: Path) -> str:
    return said.read_text(errors="replace").replace("\r", "")


def _archive(command: str) -> bytes:
    """The files that the machine starts with, as cpio's format "newc" holds them."""
    drivers = {name: next((_PARTS / "drivers").glob(f"{name}.ko*")) for name in _DRIVERS}
    entries = [
        ("init", _PROGRAM, _BOOT.read_bytes()),
        ("busybox", _PROGRAM, (_PARTS / "busybox").read_bytes()),
        ("command", _FILE, command.encode()),
        ("checkout", _FILE, str(_CHECKOUT).encode()),
        ("drivers", _DIRECTORY, b""),
        ("drivers/order", _FILE, " ".join(path.name for path in drivers.values()).encode()),
        *((f"drivers/{path.name}", _FILE, path.read_bytes()) for path in drivers.values()),
        ("TRAILER!!!", 0, b""),
    ]
    return b"".join(_entry(number, *entry) for number, entry in enumerate(entries, 1))


def _entry(number: int, name: str, mode: int, content: bytes) -> bytes:
    encoded = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    return _padded(head) + _padded(content)


def _padded(part: bytes) -> bytes:
    return part + b"\0" * (-len(part) % 4)
