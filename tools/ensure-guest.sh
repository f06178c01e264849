#!/usr/bin/env bash
# The tests of version 2 of control groups run in a virtual machine with Debian's kernel. Says nothing where its parts
# are; else installs qemu where that needs no question, and takes the kernel and busybox out of their packages.
# Argument: the directory that gets these.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/apt.sh"

target="$1"
what="for the tests of control groups"

explain() {
    echo "There is no virtual machine for tests. Debian on amd64: sudo apt-get install qemu-system-x86 e2fsprogs" >&2
    exit 1
}

if ! command -v qemu-system-x86_64 >/dev/null 2>&1; then
    install_package qemu-system-x86 "$what" --no-install-recommends || explain
fi
[ ! -e "$target/boot" ] || exit 0
kernel=$(apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9]\)/\1/p') && [ -n "$kernel" ] || explain
unpack_packages "$target" "$what" "$kernel" busybox-static || explain
# Of more than 4,000 drivers, the machine needs these.
drivers="virtio virtio_ring virtio_pci virtio_pci_modern_dev virtio_pci_legacy_dev virtio_blk netfs fscache 9p 9pnet
9pnet_virtio overlay crc16 crc32c_generic mbcache jbd2 ext4"
mkdir "$target/drivers"
for each in $drivers; do find "$target/lib/modules" -name "$each.ko*" -exec mv {} "$target/drivers" \;; done
find "$target" -name busybox -type f -perm /1 -exec mv {} "$target/busybox" \;
rm -rf "$target/bin" "$target/lib" "$target/usr" "$target"/boot/System.map-*
