#!/usr/bin/env bash
# The tests with several hosts need the programs that make network namespaces, shift clocks and hang mounts. Says nothing
# where they are; installs them where that needs no question. These tests are skipped where the programs or root are
# missing, so this is no failure.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/apt.sh"

explain() {
    echo "The tests with several hosts will be skipped. Debian: sudo apt-get install iproute2 nftables faketime bindfs" >&2
    exit 0
}

# Debian has some of these programs in directories that only root's PATH has.
PATH=$PATH:/usr/sbin:/sbin
[ "$(id -u)" = 0 ] || explain
for each in ip:iproute2 nft:nftables faketime:faketime bindfs:bindfs; do
    command -v "${each%:*}" >/dev/null 2>&1 || install_package "${each#*:}" "for tests with several hosts" --no-install-recommends || explain
done
