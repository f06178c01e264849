#!/usr/bin/env bash
# The tests of alert rules and dashboards need promtool, which comes in Debian's package `prometheus`. Says nothing where
# there is one; else takes it out of the package. The package is not installed: that would start its service.
# Argument: the directory that gets promtool.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/apt.sh"

target="$1"
! command -v promtool >/dev/null 2>&1 || exit 0
[ ! -x "$target/promtool" ] || exit 0

explain() {
    echo "There is no promtool. Put it on the PATH: it is in Debian's package prometheus, and in Prometheus' releases." >&2
    exit 1
}

unpack_program prometheus usr/bin/promtool "$target/promtool" "with which rules and dashboards are tested" || explain
