#!/bin/bash
# Builds a real Kubernetes from Go modules: etcd, kube-apiserver, kube-controller-manager,
# kube-scheduler, kubelet, kube-proxy and kubectl, which are one binary (tools/kube), and the reference
# CNI plugins (tools/cni).
#
#   scripts/kubetools.sh          into .cache/kube, or into $WARREN_KUBE_BIN
#
# Nothing happens when what is there was built from these very modules. The first time takes about 15
# minutes on two cores, 4 GB of memory and as much disk for Go's caches, which make the next time take
# seconds. After KUBETOOLS_MINUTES (60) it gives up; what is compiled by then is kept.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${WARREN_KUBE_BIN:-$PWD/.cache/kube}
limit=${KUBETOOLS_MINUTES:-60}
components=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl)
plugins=(main/bridge main/loopback main/ptp ipam/host-local meta/portmap)

export CGO_ENABLED=0

# built_from prints what the result depends on.
built_from() {
	go env GOVERSION GOARCH
	sha256sum scripts/kubetools.sh tools/kube/*.go tools/{kube,cni}/go.{mod,sum}
}

# complete reports whether everything is there.
complete() {
	local name
	for name in kubetools "${components[@]}" "${plugins[@]##*/}"; do
		[ -x "$target/$name" ] || return 1
	done
}

# version_flags prints the linker's flags for the version that Kubernetes says it is.
version_flags() {
	local version major minor rest package
	version=$(cd tools/kube && go list -m -f '{{.Version}}' k8s.io/kubernetes)
	IFS=. read -r major minor rest <<<"${version#v}"
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf -- '-X %s.%s ' "$package" "gitVersion=$version" "$package" "gitMajor=$major" "$package" "gitMinor=$minor" \
			"$package" gitTreeState=clean
	done
}

# build MODULE ARGUMENTS... runs go build there within the time limit.
build() {
	local module=$1
	shift
	(cd "$module" && timeout --kill-after=10s "${limit}m" go build -trimpath -buildvcs=false "$@") && return
	echo "scripts/kubetools.sh: $module is not built; KUBETOOLS_MINUTES=$limit is how long it may take" >&2
	return 1
}

mkdir -p "$target"
target=$(cd "$target" && pwd)
exec 9>"$target/.lock"
flock 9

wanted=$(built_from)
if complete && [ "$(cat "$target/.built-from" 2>/dev/null)" = "$wanted" ]; then
	exit 0
fi

echo "building Kubernetes into $target: about 15 minutes on two cores the first time, seconds later"
started=$SECONDS
build tools/kube -ldflags "-s -w $(version_flags)" -o "$target/.kubetools.new" .
mv "$target/.kubetools.new" "$target/kubetools" # in one step: the old one may run
for name in "${components[@]}"; do
	ln -sf kubetools "$target/$name"
done
build tools/cni -ldflags '-s -w' -o "$target/" "${plugins[@]/#/github.com/containernetworking/plugins/plugins/}"
echo "$wanted" >"$target/.built-from"
echo "built Kubernetes in $((SECONDS - started)) s"
