// Package control runs a real Kubernetes control plane on one machine: etcd, kube-apiserver and, if
// wanted, kube-controller-manager and kube-scheduler, in a network namespace or in the caller's own. It
// owns their keys and certificates, their data and their processes, all of which it keeps in one folder:
// the processes outlive the program that started them and are found again from there. What the API server
// holds is its users' business.
//
//	plane, err := control.Start(ctx, control.Options{Dir: dir, Binaries: bin, Namespace: "n1", Address: n1})
//	defer plane.Stop(ctx)
//	nodes, err := plane.Kubectl(ctx, "", "get", "nodes")
//	config, err := plane.Kubeconfig(control.Client{User: "system:node:n1", Groups: []string{"system:nodes"}})
package control
