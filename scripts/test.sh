#!/bin/bash
# Runs the tests and shows what was skipped.
#
#   scripts/test.sh            everything that can run on this machine, packages first, then test/
#   scripts/test.sh race       the packages under the race detector
#   scripts/test.sh kube       those that need a real Kubernetes, from $WARREN_KUBE_BIN or .cache/kube, or helm
#   scripts/test.sh cluster    Warren installed in a whole Kubernetes cluster, from the same place
#   scripts/test.sh long       random tests with far more rounds
#
# With CI=true a skipped test fails unless test/skips.txt names it.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
CGO_ENABLED=0 go build -o "$tools/testreport" ./scripts/testreport

report=("$tools/testreport" -skips test/skips.txt)
if [ "${CI:-}" = true ]; then
	report+=(-strict)
fi

# go_test ARGUMENTS... runs go test and prints its report.
go_test() { go test -json -count=1 "$@" | "${report[@]}"; }

# packages prints the packages of the module outside test/.
packages() { go list ./... | grep -v '^warren/test\(/\|$\)'; }

# random_packages prints the packages that have property tests; only they know -rapid.checks.
random_packages() {
	go list -f '{{join .TestImports "\n"}}{{"\n"}}{{join .XTestImports "\n"}}{{"\n"}}@{{.ImportPath}}' ./... |
		awk '/^pgregory.net\/rapid$/ { random = 1 } sub(/^@/, "") { if (random) print; random = 0 }'
}

# all leaves Kubernetes to kube and cluster, also where it has been built already.
all() {
	local failed=0 list
	unset WARREN_KUBE_BIN WARREN_HELM
	list=$(packages)
	mapfile -t list <<<"$list"
	go_test -timeout 15m "${list[@]}" || failed=1
	# Whole clusters and timing: one package at a time.
	go_test -timeout 20m -p 1 ./test/... || failed=1
	return $failed
}

race() {
	local list
	list=$(packages)
	mapfile -t list <<<"$list"
	CGO_ENABLED=1 go_test -race -timeout 30m "${list[@]}"
}

# kube accepts no skip: whoever calls it has built Kubernetes, etcd among it, and helm.
kube() {
	local failed=0
	report=("$tools/testreport" -strict -skips /dev/null)
	export WARREN_KUBE_BIN=${WARREN_KUBE_BIN:-$PWD/.cache/kube}
	WARREN_HELM=$PWD/.cache/helm go_test ./deploy || failed=1
	go_test ./internal/discovery/etcd || failed=1
	go_test -timeout 20m ./test/kube/... || failed=1
	go_test -timeout 20m -run ^TestKube ./test/e2e || failed=1
	return $failed
}

# cluster is for whole clusters, which accept no skip either.
cluster() {
	report=("$tools/testreport" -strict -skips /dev/null)
	WARREN_KUBE_BIN=${WARREN_KUBE_BIN:-$PWD/.cache/kube} go_test -timeout 25m ./test/cluster/...
}

# long obeys WARREN_FUZZ_PACKETS (packets against the loaded eBPF program), RAPID_CHECKS (rounds of
# each property) and FUZZ_TIME (of each parser).
long() {
	local failed=0 list packets=${WARREN_FUZZ_PACKETS:-2000000} rounds=${RAPID_CHECKS:-100000}
	unset WARREN_FUZZ_PACKETS
	echo "== $packets random packets through the eBPF program and its Go model"
	WARREN_FUZZ_PACKETS=$packets go_test -timeout 60m ./internal/datapath/... || failed=1
	echo "== $rounds rounds of each property"
	list=$(random_packages)
	mapfile -t list <<<"$list"
	go_test -timeout 60m "${list[@]}" -rapid.checks="$rounds" || failed=1
	fuzz_parsers "${FUZZ_TIME:-60s}" || failed=1
	return $failed
}

# fuzz_parsers TIME runs every Go fuzz target for that long.
fuzz_parsers() {
	local file target failed=0
	while IFS=: read -r file target; do
		echo "== $target in $(dirname "$file") for $1"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" "./$(dirname "$file")" || failed=1
	done < <(git grep -o 'func Fuzz[A-Za-z0-9_]*' -- '*_test.go' | sed 's/:func /:/')
	return $failed
}

"${1:-all}"
