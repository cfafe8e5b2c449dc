// Package lab builds a cluster of network namespaces on one machine: a switch as the wire, nodes on
// it, pods behind the nodes, and one real agent process per node. It owns how such a cluster is made,
// kept, entered and removed without a trace; what is proved in it belongs to package proof. It changes
// nothing in the machine's own network namespace.
//
//	spec := lab.Spec{Name: lab.DefaultName, Nodes: []int{1, 2, 3}, Pods: 2, CNI: lab.CNIRoutes, MTU: 1500, Agent: &lab.AgentOptions{Binary: warren}}
//	l, err := lab.Up(ctx, spec, lab.Options{})
//	defer lab.Down(ctx, spec.Name)
package lab
