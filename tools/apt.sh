# Sourced by the checks for programs that the system's packages bring.

# Install a package with apt-get, if that needs no question. Fails otherwise.
# Arguments: the package, what it is for, further options of `apt-get install`.
install_package() {
    local as_root install
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ "$(id -u)" = 0 ]; then
        as_root=(env)
    elif sudo -n true 2>/dev/null; then
        as_root=(sudo -n env)
    else
        return 1
    fi
    echo "Installing $1, $2"
    install=("${as_root[@]}" DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${@:3}" "$1")
    # Only errors are shown; what apt-get says of each package is for nobody here.
    "${install[@]}" </dev/null >/dev/null || { "${as_root[@]}" apt-get update -qq </dev/null >/dev/null && "${install[@]}" </dev/null >/dev/null; }
}
