#!/usr/bin/env bash
# The tests of task managers as Slurm jobs need Debian's Slurm. Says nothing where there is one; installs one where that
# needs no question.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/apt.sh"

command -v slurmctld >/dev/null 2>&1 && exit 0

explain() {
    echo "There is no Slurm. Debian: sudo apt-get install slurm-wlm" >&2
    exit 1
}

install_package slurm-wlm "whose jobs run task managers in the tests" --no-install-recommends || explain
command -v slurmctld >/dev/null 2>&1 || explain
