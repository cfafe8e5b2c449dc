#!/bin/bash
# Installs the Debian packages that a make target needs, if any is missing.
#
#   scripts/deps.sh demo|check|test|race|vm|kube|cluster|bench...
#
# Nothing happens, not even `apt-get update`, when everything is there. Go itself is not installed:
# it must be in PATH or in /usr/local/go.
set -euo pipefail

packages_of() {
	case "$1" in
	# Namespaces, the traffic of the lab, and looking at what it leaves behind.
	demo) echo iproute2 iputils-ping procps ;;
	# The eBPF objects are compared with what exactly this clang makes of the source.
	generate) echo clang-19 llvm-19 clang-format-19 libbpf-dev linux-libc-dev ;;
	check) echo shellcheck && packages_of generate ;;
	# A firewall that must not notice Warren (netbase has the names of protocols), a second look at
	# what is attached, a scrape, kernel modules; what test/bench measures with.
	test) echo nftables netbase bpftool curl xz-utils && packages_of bench ;;
	# The race detector needs cgo.
	race) echo gcc libc6-dev ;;
	vm) echo qemu-system-x86 xz-utils && packages_of demo ;;
	# API servers and labs with one; whole clusters with containers, with what kube-proxy writes its rules with,
	# and with a second look at what is attached.
	kube) echo util-linux && packages_of demo ;;
	cluster) echo containerd runc iptables nftables conntrack bpftool && packages_of kube ;;
	# Bulk TCP, and the fastest ChaCha20-Poly1305 there is to compare with.
	bench) echo iperf3 openssl && packages_of demo ;;
	*) echo "scripts/deps.sh: unknown set $1" >&2 && return 2 ;;
	esac
}

missing_of() {
	local package
	for package in "$@"; do
		case "$(dpkg-query --show --showformat '${db:Status-Abbrev}' "$package" 2>/dev/null)" in
		ii*) ;;
		*) echo "$package" ;;
		esac
	done
}

wanted=()
for set in "$@"; do
	list=$(packages_of "$set")
	read -ra packages <<<"${list//$'\n'/ }"
	wanted+=("${packages[@]}")
done

if ! command -v dpkg-query apt-get >/dev/null; then
	echo "scripts/deps.sh: not a Debian machine; needed here: ${wanted[*]}" >&2
	exit 0
fi
mapfile -t missing < <(missing_of "${wanted[@]}" | sort -u)
[ "${#missing[@]}" -gt 0 ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
	echo "scripts/deps.sh: missing ${missing[*]}; as root: apt-get install ${missing[*]}" >&2
	exit 1
fi

echo "installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
lock=(-o DPkg::Lock::Timeout=300)
apt-get "${lock[@]}" update -q </dev/null >/dev/null
apt-get "${lock[@]}" install -q -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
