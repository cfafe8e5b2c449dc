#!/bin/bash
# Compiles the eBPF programs into internal/datapath/warren.bpf.o, which is committed.
#
#   scripts/generate-bpf.sh            render bpf/reason.h, compile
#   scripts/generate-bpf.sh --check    compile elsewhere and compare with what is committed
#
# The same source gives the same bytes on every machine that has these very tools: clang 19 and the
# headers of Debian 12 (libbpf-dev, linux-libc-dev). The object is the same for every little-endian
# architecture.
set -euo pipefail
cd "$(dirname "$0")/.."

source=internal/datapath/bpf/warren.c
object=internal/datapath/warren.bpf.o

# compile OUTPUT
compile() {
	local headers
	headers=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || gcc -print-multiarch 2>/dev/null || echo "$(uname -m)-linux-gnu")
	clang-19 -target bpfel -mcpu=v3 -O2 -g -std=gnu11 -Wall -Wextra -Werror \
		-Wno-unused-parameter -Wno-missing-field-initializers \
		-fno-ident -ffile-prefix-map="$PWD"=. -fdebug-compilation-dir=. \
		-I"/usr/include/$headers" -c "$source" -o "$1"
	# DWARF is for nobody; BTF stays, the loader needs it.
	llvm-strip-19 --strip-debug "$1"
}

case "${1:-}" in
--check)
	scratch=$(mktemp -d)
	trap 'rm -rf "$scratch"' EXIT
	compile "$scratch/warren.bpf.o"
	if ! cmp "$scratch/warren.bpf.o" "$object"; then
		echo "$object is not what the source compiles to; run make generate" >&2
		exit 1
	fi
	;;
"")
	go test -count=1 ./internal/datapath/model -run '^TestReasonHeader$' -update >/dev/null
	compile "$object"
	;;
*)
	echo "usage: scripts/generate-bpf.sh [--check]" >&2
	exit 2
	;;
esac
