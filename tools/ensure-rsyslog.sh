#!/usr/bin/env bash
# The test of the configuration for log shipping needs rsyslog. Says nothing where there is one; else takes it and its
# libraries out of their packages. The packages are not installed: that would start its service.
# Argument: the directory that gets them.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/apt.sh"

target="$1"
[ ! -x /usr/sbin/rsyslogd ] || exit 0
[ ! -x "$target/usr/sbin/rsyslogd" ] || exit 0

explain() {
    echo "There is no rsyslog. Debian: sudo apt-get install rsyslog" >&2
    exit 1
}

unpack_packages "$target" "with which the shipping of logs is tested" rsyslog libestr0 libfastjson4 || explain
