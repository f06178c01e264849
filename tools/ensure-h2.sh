#!/usr/bin/env bash
# PySpark's example of JDBC needs a database and its driver: H2 is both, in one jar, which Debian packages. Says nothing
# where there is one; installs one where that needs no question.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/apt.sh"

jar=/usr/share/java/h2.jar
[ ! -e "$jar" ] || exit 0

explain() {
    echo "There is no $jar. Debian: sudo apt-get install libh2-java" >&2
    exit 1
}

install_package libh2-java "a database for PySpark's example of JDBC" --no-install-recommends || explain
[ -e "$jar" ] || explain
