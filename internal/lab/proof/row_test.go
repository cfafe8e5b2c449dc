package proof

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/lab"
)

func topology(nodes, pods int) lab.Topology {
	return lab.Spec{Name: "x", Nodes: lab.NodeNumbers(nodes), Pods: pods, CNI: lab.CNIRoutes, MTU: 1500}.Topology()
}

func TestRows(t *testing.T) {
	tests := []struct {
		name        string
		nodes, pods int
		filter      Filter
		want        int
	}{
		{name: "three nodes", nodes: 3, pods: 2, want: 6 * 4 * 2 * 3},
		{name: "two nodes", nodes: 2, pods: 1, want: 2 * 4 * 2 * 3},
		{name: "without pods only hosts talk", nodes: 2, want: 2 * 1 * 2 * 3},
		{name: "one node has nobody to talk to", nodes: 1, pods: 2},
		{name: "one class", nodes: 3, pods: 2, filter: Filter{Classes: []string{"pod-pod"}}, want: 6 * 2 * 3},
		{name: "everything filtered", nodes: 3, pods: 2, filter: Filter{Classes: []string{"host-pod"}, Families: []string{"ipv6"}, Protocols: []string{"tcp"}, From: []string{"n1"}, To: []string{"n3"}}, want: 1},
		{name: "to oneself", nodes: 3, pods: 2, filter: Filter{From: []string{"n1"}, To: []string{"n1"}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := len(Rows(topology(test.nodes, test.pods), test.filter)); got != test.want {
				t.Errorf("%d rows, want %d", got, test.want)
			}
		})
	}
}

func TestRowEnds(t *testing.T) {
	rows := Rows(topology(2, 2), Filter{From: []string{"n1"}, Protocols: []string{"tcp"}})
	var got []string
	for _, row := range rows {
		got = append(got, row.String()+": "+row.source.Place+" "+row.source.Address.String()+" > "+row.destination.Place+" "+row.destination.Address.String())
	}
	want := []string{
		"host-host n1 to n2, ipv4 tcp: n1 10.10.0.1 > n2 10.10.0.2",
		"host-host n1 to n2, ipv6 tcp: n1 fd00:10::1 > n2 fd00:10::2",
		"host-pod n1 to n2, ipv4 tcp: n1 10.10.0.1 > n2/p2 10.42.2.12",
		"host-pod n1 to n2, ipv6 tcp: n1 fd00:10::1 > n2/p2 fd00:42:2::12",
		"pod-host n1 to n2, ipv4 tcp: n1/p1 10.42.1.11 > n2 10.10.0.2",
		"pod-host n1 to n2, ipv6 tcp: n1/p1 fd00:42:1::11 > n2 fd00:10::2",
		"pod-pod n1 to n2, ipv4 tcp: n1/p1 10.42.1.11 > n2/p2 10.42.2.12",
		"pod-pod n1 to n2, ipv6 tcp: n1/p1 fd00:42:1::11 > n2/p2 fd00:42:2::12",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}
