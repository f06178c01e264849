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

# Take one program out of a package, without installing it. Needs no root, unless the lists of packages are old.
# Arguments: the package, the program's path in it, the file to write, what it is for.
unpack_program() (
    command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || return 1
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    fetch() { (cd "$folder" && apt-get -qq -o APT::Sandbox::User=root download "$1" </dev/null >/dev/null); }
    echo "Unpacking ${2##*/} from $1, $4"
    fetch "$1" || { apt-get update -qq </dev/null >/dev/null && fetch "$1"; } || return 1
    dpkg-deb --fsys-tarfile "$folder/$1"_*.deb | tar -xO "./$2" >"$folder/program" || return 1
    install -m 755 "$folder/program" "$3.new" && mv "$3.new" "$3"
)

# Take all files out of packages, without installing them, as `unpack_program` does.
# Arguments: the directory that gets them, what they are for, the packages.
unpack_packages() (
    command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || return 1
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    fetch() { (cd "$folder" && apt-get -qq -o APT::Sandbox::User=root download "$@" </dev/null >/dev/null); }
    echo "Unpacking $3, $2"
    fetch "${@:3}" || { apt-get update -qq </dev/null >/dev/null && fetch "${@:3}"; } || return 1
    mkdir "$folder/all"
    for each in "$folder"/*.deb; do dpkg-deb --extract "$each" "$folder/all" || return 1; done
    rm -rf "$1" "$1.new" && cp -r "$folder/all" "$1.new" && mv "$1.new" "$1"
)
