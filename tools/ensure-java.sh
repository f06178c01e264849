#!/usr/bin/env bash
# Spark needs a Java 17+ runtime. Says nothing where there is one; installs one where that needs no question.
set -euo pipefail
. "${BASH_SOURCE[0]%/*}/apt.sh"

wanted=17

# The major version of the Java that Spark would start ("17.0.15" -> 17, "1.8.0_442" -> 8), or 0.
java_major() {
    local java=java version
    [ -z "${JAVA_HOME:-}" ] || java="$JAVA_HOME/bin/java"
    command -v "$java" >/dev/null 2>&1 || { echo 0; return; }
    version=$("$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1)
    echo "${version:-0}"
}

found=$(java_major)
[ "$found" -lt "$wanted" ] || exit 0

explain() {
    if [ -n "${JAVA_HOME:-}" ]; then
        echo "JAVA_HOME=$JAVA_HOME holds no Java $wanted or newer (found: $found). Point it at one, or unset it." >&2
    else
        echo "Spark needs a Java $wanted+ runtime; found: $([ "$found" = 0 ] && echo none || echo "Java $found")." >&2
    fi
    echo "Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless" >&2
    echo "Fedora: sudo dnf install java-17-openjdk-headless" >&2
    exit 1
}

[ -z "${JAVA_HOME:-}" ] || explain
install_package openjdk-17-jre-headless "which Spark needs" || explain
[ "$(java_major)" -ge "$wanted" ] || explain
