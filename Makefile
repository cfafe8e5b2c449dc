# Warren's workshop: `make` lists the targets.
#
# Every target installs the Debian packages it needs if they are missing (scripts/deps.sh), so that
# a fresh Debian 12 with Go, make and git is enough. Building and the demonstration need no compiler
# but Go's: the eBPF objects are in the repository.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Go may be where its archive puts it, without being in PATH.
export PATH := $(PATH):/usr/local/go/bin

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X warren/internal/cli.version=$(VERSION)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 22

.PHONY: build
build: ## build bin/warren, one static binary
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/warren ./cmd/warren
	@ls -lh bin/warren | awk '{ print $$NF ": " $$5 "B, version $(VERSION)" }'

# The name that the image has in the manifests.
IMAGE ?= localhost/warren:dev

.PHONY: image
image: build ## the container image, bin/warren-image.tar: IMAGE=localhost/warren:dev
	@go run ./scripts/image -tag '$(IMAGE)' -out bin/warren-image.tar

.PHONY: deploy
deploy: ## the manifests in deploy/, rendered from the Helm chart: IMAGE=localhost/warren:dev
	@scripts/render.sh '$(IMAGE)'

.PHONY: demo
demo: ## a cluster on this machine whose wire carries nothing in clear: the table that shows it
	@scripts/deps.sh demo
	@$(MAKE) --no-print-directory build
	@scripts/demo.sh

.PHONY: check
check: ## gofmt, vet, staticcheck, clang-format, shellcheck, generated code
	@scripts/deps.sh check
	@scripts/check.sh

.PHONY: test
test: ## the checks and every test that can run on this machine
	@scripts/deps.sh check test
	@$(MAKE) --no-print-directory build
	@failed=0; \
	scripts/check.sh || failed=1; \
	WARREN_BINARY=$(CURDIR)/bin/warren scripts/test.sh || failed=1; \
	exit $$failed

.PHONY: test-race
test-race: ## the packages' tests under the race detector
	@scripts/deps.sh test race
	@scripts/test.sh race

.PHONY: test-vm
test-vm: ## the datapath with kernel WireGuard on Debian's kernels 6.1 and 6.12, in qemu
	@scripts/deps.sh vm
	@scripts/test-vm.sh

.PHONY: test-kube
test-kube: ## discovery, manifests and labs against a real Kubernetes API server
	@scripts/deps.sh kube
	@scripts/kubetools.sh
	@scripts/helm.sh version --short
	@$(MAKE) --no-print-directory build
	@WARREN_BINARY=$(CURDIR)/bin/warren scripts/test.sh kube

.PHONY: test-cluster
test-cluster: ## Warren installed in a whole Kubernetes cluster: three kubelets, real pods, every way out of the install
	@scripts/deps.sh cluster
	@scripts/kubetools.sh
	@scripts/helm.sh version --short
	@$(MAKE) --no-print-directory build
	@WARREN_BINARY=$(CURDIR)/bin/warren scripts/test.sh cluster

.PHONY: test-long
test-long: ## random tests with millions of packets and hundreds of thousands of rounds
	@scripts/deps.sh test
	@scripts/test.sh long

# Of the throughput measurement: how often every setting takes its turn, the seconds of one measurement, and
# another warren to compare with in the same run (docs/performance.md).
BENCH_RUNS ?= 5
BENCH_SECONDS ?= 3
BENCH_BASELINE ?=

.PHONY: bench
bench: ## the benchmarks; throughput and latency against plain WireGuard go to bench/
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build
	@uname -srm; echo "$$(nproc) processors, load $$(cut -d' ' -f1-3 /proc/loadavg)"
	@go test -count=1 -run '^TestScale$$' -v ./internal/ipcache | grep scale_test.go
	@go test -p 1 -timeout 30m -run '^$$' -bench . -benchmem ./... | grep -v 'no test files'
	@$(MAKE) --no-print-directory bench-throughput

.PHONY: bench-throughput
bench-throughput: ## only throughput and latency: BENCH_RUNS=5 BENCH_SECONDS=3
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build
	@go run ./test/bench -binary bin/warren -baseline '$(BENCH_BASELINE)' -runs $(BENCH_RUNS) -seconds $(BENCH_SECONDS)

.PHONY: bench-switching
bench-switching: ## what connections notice that run while encryption is switched, into bench/switching.md
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build
	@go run ./test/bench -binary bin/warren -switching -runs $(BENCH_RUNS)

.PHONY: bench-profile
bench-profile: ## where the tunnel process spends its time, into bench/profile.md
	@scripts/deps.sh bench
	@$(MAKE) --no-print-directory build
	@go run ./test/bench -binary bin/warren -profile

.PHONY: generate
generate: ## compile the eBPF programs and render the tables in docs/
	@scripts/deps.sh generate
	@scripts/generate-bpf.sh
	@go test -count=1 ./docs -update

.PHONY: clean
clean: ## remove what was built and downloaded
	@rm -rf bin .cache
