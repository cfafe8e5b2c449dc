#!/bin/bash
# A cluster on this machine whose wire carries nothing in clear: builds a laboratory, proves it on the
# wire, prints the table, and removes everything again, whatever happens.
#
#   scripts/demo.sh [WARREN]     WARREN is the binary, bin/warren by default
set -euo pipefail
cd "$(dirname "$0")/.."

warren=${1:-bin/warren}
name=demo-$$

if [ "$(id -u)" -ne 0 ]; then
	echo "the demonstration makes network namespaces: run it as root" >&2
	exit 1
fi

trap '"$warren" lab down --name "$name"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

for cni in routes vxlan; do
	printf '\n##### a cluster of three nodes, pods by %s\n' "$cni"
	"$warren" lab up --name "$name" --nodes 3 --pods 2 --cni "$cni"
	"$warren" lab status --name "$name"
	printf '\n##### what its wire carries\n'
	"$warren" lab verify --name "$name"
	"$warren" lab down --name "$name"
done
printf '\nEverything that the demonstration made is removed.\n'
