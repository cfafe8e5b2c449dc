// Package kube has the tests that need a real Kubernetes API server: the control plane itself, discovery,
// manifests, and labs with a control plane. `make test-kube` builds Kubernetes and runs them; without
// WARREN_KUBE_BIN, the folder of its binaries, they are skipped.
package kube
