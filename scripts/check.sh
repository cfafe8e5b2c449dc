#!/bin/bash
# Everything that can be said about the code without running it. Every check runs, whatever the
# others say; the exit code is 1 when one complained.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

complaints=0

# check NAME COMMAND... runs one check and prints its output only when it complains.
check() {
	local name=$1 output
	shift
	if output=$("$@" 2>&1); then
		echo "ok    $name"
	else
		complaints=$((complaints + 1))
		printf 'WRONG %s\n%s\n' "$name" "$output"
	fi
}

formatted() {
	local files
	files=$(gofmt -l cmd deploy docs internal scripts test) && [ -z "$files" ] && return
	printf 'gofmt -w would change:\n%s\n' "$files"
	return 1
}

c_formatted() {
	clang-format-19 --dry-run --Werror internal/datapath/bpf/*.[ch]
}

# shell_files prints the scripts, by name or by first line, NUL-separated.
shell_files() {
	local file first
	while IFS= read -r -d '' file; do
		[ -f "$file" ] || continue
		case "$file" in *.sh) printf '%s\0' "$file" && continue ;; esac
		IFS= read -r first <"$file" || continue
		case "$first" in '#!'*sh) printf '%s\0' "$file" ;; esac
	done < <(git ls-files -z --cached --others --exclude-standard -- .ci scripts deploy test)
}

shell_clean() { shell_files | xargs -0 shellcheck; }

# modules_complete fails when a dependency is missing from go.sum or go.mod lists one too many.
modules_complete() { go mod verify && go mod tidy -diff; }

check "gofmt" formatted
check "go vet" go vet ./...
check "a build without the engines of Kubernetes and etcd" go vet -tags nokube,noetcd ./cmd/... ./internal/...
check "staticcheck" go tool -modfile=tools/go.mod staticcheck ./...
check "go.mod" modules_complete
check "clang-format" c_formatted
check "shellcheck" shell_clean
check "generated eBPF code" scripts/generate-bpf.sh --check

if [ "$complaints" -gt 0 ]; then
	echo "$complaints of the checks complained"
	exit 1
fi
