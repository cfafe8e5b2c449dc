// Package cluster installs Warren in a real Kubernetes cluster and proves what that is worth on the wire: three
// machines made of namespaces, each with containerd, a kubelet, real CNI plugins and, where a test wants it, kube-proxy;
// the first of them also carries the control plane. Everything is removed at the end, however the tests end.
//
//	             bridge `wire`, namespace …wire
//	       │ port node-1            │ port node-2            │ port node-3
//	┌── eth0 10.89.0.11 ───┐ ┌── eth0 10.89.0.12 ───┐ ┌── eth0 10.89.0.13 ───┐
//	│ etcd, kube-apiserver │ │ kubelet, containerd  │ │ kubelet, containerd  │
//	│ kubelet, containerd  │ │ cni0 10.244.2.1/24   │ │ cni0 10.244.3.1/24   │
//	│ cni0 10.244.1.1/24   │ └── pods ──────────────┘ └── pods ──────────────┘
//	└── pods ──────────────┘
//
// WARREN_BINARY names a binary to test instead of building one, WARREN_KUBE_BIN the folder of scripts/kubetools.sh.
//
//	make test-cluster
package cluster
