#!/bin/bash
# Builds helm, as tools/helm/go.mod pins it, into .cache/helm, and runs it with the arguments given.
#
#   scripts/helm.sh lint --strict deploy/helm/warren
#
# The first build takes minutes; Go's caches and the built program are kept.
set -euo pipefail
cd "$(dirname "$0")/.."

helm=$PWD/.cache/helm
if [ ! -x "$helm" ] || [ tools/helm/go.sum -nt "$helm" ]; then
	mkdir -p .cache
	(cd tools/helm && CGO_ENABLED=0 go build -trimpath -o "$helm" helm.sh/helm/v3/cmd/helm)
fi
exec "$helm" "$@"
