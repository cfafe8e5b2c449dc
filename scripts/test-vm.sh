#!/bin/bash
# Runs the tests on kernels that have WireGuard, in virtual machines without KVM.
#
#   scripts/test-vm.sh                          the drivers, then whole clusters, on every kernel
#   scripts/test-vm.sh -run Overlay ./test/vm   other arguments for go test
#   KERNELS="linux-image-cloud-amd64" scripts/test-vm.sh    only that kernel
#
# The kernels are Debian's packages: downloaded and unpacked into .cache/vm, never installed. A test
# that is skipped fails unless the kernel's list in test/vm/skips names it.
set -euo pipefail
cd "$(dirname "$0")/.."

# Debian 12's kernel (6.1: clsact) and its backport from 13 (6.12: TCX).
read -ra kernels <<<"${KERNELS:-linux-image-cloud-amd64 linux-image-6.12-cloud-amd64}"
arguments=("$@")
if [ $# -eq 0 ]; then
	# Tunnel processes are the same on every kernel, and slow under emulation.
	arguments=(-skip /^userspace$ ./internal/netdev ./internal/wireguard ./internal/datapath ./test/vm)
fi
cache=$PWD/.cache/vm

if [ "$(uname -m)" != x86_64 ]; then
	echo "scripts/test-vm.sh: the guests are amd64, this machine is $(uname -m)" >&2
	exit 1
fi

# resolve PACKAGE prints the package that a kernel's meta package stands for, and its version.
resolve() {
	local package version
	package=$(apt-cache depends --important "$1" 2>/dev/null | awk '$1 == "Depends:" { print $2; exit }')
	version=$(apt-cache policy "$package" 2>/dev/null | awk '$1 == "Candidate:" { print $2 }')
	[ -n "$package" ] && [ -n "$version" ] && echo "$package $version"
}

# fetch PACKAGE prints the folder of the unpacked kernel, and fills it if it is not there.
fetch() {
	local resolved package version folder partial
	if ! resolved=$(resolve "$1"); then
		apt-get update -q </dev/null >&2
		resolved=$(resolve "$1") || { echo "scripts/test-vm.sh: no package $1" >&2 && return 1; }
	fi
	read -r package version <<<"$resolved"
	folder=$cache/${package}_$version
	if [ ! -d "$folder" ]; then
		echo "downloading $package $version" >&2
		mkdir -p "$cache"
		partial=$(mktemp -d "$cache/partial.XXXXXX")
		(cd "$partial" && apt-get download -q -o APT::Sandbox::User=root "$package=$version" </dev/null >&2)
		dpkg -x "$partial"/*.deb "$partial/unpacked"
		mv "$partial/unpacked" "$folder"
		rm -rf "$partial"
	fi
	echo "$folder"
}

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
export CGO_ENABLED=0 # static test programs: the guest has the libraries of its tools and no others
go build -o "$tools/runner" ./test/vm/runner
go build -o "$tools/guest" ./test/vm/guest
go build -o "$tools/testreport" ./scripts/testreport
go build -trimpath -buildvcs=false -o "$tools/warren" ./cmd/warren

# test_on FOLDER ARGUMENTS... runs go test on the kernel in the folder.
test_on() {
	local folder=$1 series run
	shift
	series=$(basename "$folder" | sed -E 's/^linux-image-([0-9]+\.[0-9]+).*/\1/')
	run="$tools/runner -timeout 9m -kernel $folder -init $tools/guest -tool $tools/warren -tool ip -tool bridge -tool tc -tool ping"
	go test -json -count=1 -p 2 -timeout 8m -exec "$run" "$@" |
		"$tools/testreport" -strict -skips "test/vm/skips/$series.txt"
}

failed=0
for kernel in "${kernels[@]}"; do
	folder=$(fetch "$kernel")
	echo "== $(basename "$folder")"
	test_on "$folder" "${arguments[@]}" || failed=1
done
exit $failed
