// Package flow is traffic that goes on while a test changes things, between network namespaces of the test's own: it
// knows afterwards what was lost.
//
//	s := flow.StartStream(t, flow.Host(n1, 0), flow.Pod(n2, 0))
//	…
//	s.Finish(t)
package flow

import (
	"testing"

	"warren/internal/lab"
	"warren/internal/lab/proof"
)

// Flow is traffic that must not suffer.
type Flow interface {
	// Finish ends the traffic and reports what it suffered.
	Finish(t testing.TB)
}

// Flows are traffic side by side.
type Flows []Flow

// Finish ends all and reports what they suffered.
func (f Flows) Finish(t testing.TB) {
	t.Helper()
	for _, one := range f {
		one.Finish(t)
	}
}

// Between starts UDP and TCP between all pairs of nodes, of hosts and of pods, in both families.
func Between(t testing.TB, nodes []lab.Node) Flows {
	t.Helper()
	var flows Flows
	for i, a := range nodes {
		for j, b := range nodes[i+1:] {
			family := (i + j) % 2
			flows = append(flows,
				StartStream(t, Host(a, family), Host(b, family)), StartStream(t, Pod(b, 1-family), Pod(a, 1-family)),
				StartConversation(t, Pod(a, family), Pod(b, family)), StartConversation(t, Host(b, 1-family), Host(a, 1-family)))
		}
	}
	return flows
}

// Host is a node itself as an end of traffic; family is 0 for IPv4 and 1 for IPv6.
func Host(n lab.Node, family int) proof.End {
	return proof.End{Place: n.Name, Namespace: n.Namespace, Address: n.Addresses[family]}
}

// Pod is the first pod of a node.
func Pod(n lab.Node, family int) proof.End {
	return proof.End{Place: n.Name + "/" + n.Pods[0].Name, Namespace: n.Pods[0].Namespace, Address: n.Pods[0].Addresses[family]}
}
