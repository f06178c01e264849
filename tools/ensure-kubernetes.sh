#!/usr/bin/env bash
# The tests of task managers as pods need an API server and a scheduler of Kubernetes, and etcd. Says nothing where they
# are; else builds the former from Debian's sources, which have all that they need, and takes etcd out of its package. The
# package is not installed: that would start its service. Takes about five minutes with two cores.
# Argument: the directory that gets the programs.
set -euo pipefail
here="${BASH_SOURCE[0]%/*}"
. "$here/apt.sh"

target="$1"
what="for the tests of task managers as pods"
[ ! -x "$target/kube-apiserver" ] || exit 0

explain() {
    echo "There is no API server of Kubernetes. Debian: sudo apt-get install golang-go" >&2
    exit 1
}

command -v go >/dev/null 2>&1 || install_package golang-go "$what" --no-install-recommends || explain
place=$(mktemp -d)
trap 'chmod -R u+w "$place" && rm -rf "$place"' EXIT
mkdir -p "$place/lists/partial" "$place/source" "$place/go/src/k8s.io" "$place/programs"

# Sources are listed apart from the packages, so that the machine's own lists stay as they are.
python3 "$here/deb_sources.py" >"$place/sources.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$place/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$place/lists" -o APT::Sandbox::User=root)
echo "Building kube-apiserver and kube-scheduler, $what"
"${apt[@]}" update </dev/null >/dev/null || explain
(cd "$place/source" && "${apt[@]}" source --download-only kubernetes </dev/null >/dev/null) || explain

unpack_program etcd-server usr/bin/etcd "$place/programs/etcd" "$what" || explain
kubernetes="$place/go/src/k8s.io/kubernetes"
mkdir "$kubernetes"
tar -xzf "$place"/source/kubernetes_*.orig.tar.gz -C "$kubernetes" --strip-components=1
version=$(ls "$place"/source/kubernetes_*.orig.tar.gz | sed -E 's/.*(really|_)([0-9]+\.[0-9]+\.[0-9]+)\.orig.*/\2/')

# The sources lack one generated file. The build is that of the time before Go's modules: nothing is downloaded.
export GOPATH="$place/go" GOCACHE="$place/cache" GO111MODULE=off GOFLAGS=-p=2 GOTOOLCHAIN=local CGO_ENABLED=0
cd "$kubernetes"
go build -o "$place/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
packages=$(cd vendor && find -L k8s.io -name '*.go' ! -name '*_test.go' -print0 |
    xargs -0 grep -lE '^//.*\+k8s:openapi-gen=' | xargs -n1 dirname | sort -u | grep -v -e sample -e code-generator |
    sed 's#^#k8s.io/kubernetes/vendor/#' | paste -sd,)
"$place/openapi-gen" -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h hack/boilerplate/boilerplate.generatego.txt -r "$place/violations" --output-base "$place/go/src"
names=k8s.io/kubernetes/vendor/k8s.io/component-base/version
IFS=. read -r major minor _ <<<"$version"
go build -o "$place/programs/" \
    -ldflags "-s -w -X $names.gitVersion=v$version -X $names.gitMajor=$major -X $names.gitMinor=$minor" \
    ./cmd/kube-apiserver ./cmd/kube-scheduler
cd - >/dev/null
rm -rf "$target" "$target.new" && cp -r "$place/programs" "$target.new" && mv "$target.new" "$target"
