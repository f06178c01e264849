#!/usr/bin/env bash
# The tests of the console and the screenshots need Debian's chromium. Says nothing where there is one; installs one
# where that needs no question.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/apt.sh"

command -v chromium >/dev/null 2>&1 && exit 0

explain() {
    echo "There is no chromium. Debian: sudo apt-get install chromium" >&2
    exit 1
}

install_package chromium "in which the pages are tested" --no-install-recommends || explain
command -v chromium >/dev/null 2>&1 || explain
