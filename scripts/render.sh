#!/bin/bash
# Renders the manifests for `kubectl apply -f` from the Helm chart, with its default values.
#
#   scripts/render.sh [IMAGE] [FOLDER]     localhost/warren:dev and deploy unless others are given
#
#   warren.yaml    everything that a cluster needs
#   tunnels.yaml   besides, where kernels have no WireGuard
#   cleanup.yaml   instead of the agents: takes Warren off every node
set -euo pipefail
cd "$(dirname "$0")/.."

image=${1:-localhost/warren:dev} folder=${2:-deploy}

# render FILE ARGUMENTS... writes one manifest.
render() {
	local file=$1
	shift
	{
		echo "# Rendered from deploy/helm/warren by \`make deploy\`; change the chart instead."
		scripts/helm.sh template warren deploy/helm/warren --namespace warren-system \
			--set image.repository="${image%:*}",image.tag="${image##*:}" "$@"
	} >"$folder/$file"
}

render warren.yaml --include-crds --set namespace.create=true
render tunnels.yaml --show-only templates/tunnels.yaml --set tunnels.enabled=true
render cleanup.yaml --show-only templates/cleanup.yaml --set cleanup.enabled=true
