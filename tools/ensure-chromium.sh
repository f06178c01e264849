#!/usr/bin/env bash
# The tests of the console and the screenshots need Debian's chromium. Says nothing where there is one; installs one
# where that needs no question.
set -euo pipefail

command -v chromium >/dev/null 2>&1 && exit 0

explain() {
    echo "There is no chromium. Debian: sudo apt-get install chromium" >&2
    exit 1
}

command -v apt-get >/dev/null 2>&1 || explain
if [ "$(id -u)" = 0 ]; then
    as_root=(env)
elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n env)
else
    explain
fi

echo "Installing chromium, in which the pages are tested"
install=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium)
# Only errors are shown; what apt-get says of each package is for nobody here.
"${install[@]}" </dev/null >/dev/null || { "${as_root[@]}" apt-get update -qq </dev/null >/dev/null && "${install[@]}" </dev/null >/dev/null; } || explain
command -v chromium >/dev/null 2>&1 || explain
