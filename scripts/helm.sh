#!/bin/bash
# Builds helm, as tools/helm/go.mod pins it, into .cache/helm, and runs it with the arguments given.
#
#   scripts/helm.sh lint --strict deploy/helm/warren
#
# The first build takes minutes; Go's caches and the built program are kept.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
helm=$root/.cache/helm

# build builds it in one step: somebody else may be running the one before.
build() {
	local kubernetes flags="-s -w" package
	cd "$root/tools/helm"
	# The Kubernetes that templates see is the one of the client library, v0.37.2 for 1.37.
	kubernetes=$(go list -m -f '{{.Version}}' k8s.io/client-go | cut -d. -f2)
	for package in pkg/lint/rules pkg/chartutil; do
		flags+=" -X helm.sh/helm/v3/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/$package.k8sVersionMinor=$kubernetes"
	done
	mkdir -p "$root/.cache"
	CGO_ENABLED=0 go build -trimpath -ldflags "$flags" -o "$helm.$$" helm.sh/helm/v3/cmd/helm
	mv "$helm.$$" "$helm"
}

if [ ! -x "$helm" ] || [ "$root/tools/helm/go.sum" -nt "$helm" ] || [ "$0" -nt "$helm" ]; then
	(build)
fi
exec "$helm" "$@"
