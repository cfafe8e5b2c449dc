package proof

import (
	"net/netip"
	"slices"

	"warren/internal/lab"
)

// The values of a row's fields, in the order of the report.
var (
	// Classes say what talks to what; a host is a node's own network.
	Classes = []string{"host-host", "host-pod", "pod-host", "pod-pod"}
	// Families of addresses.
	Families = []string{"ipv4", "ipv6"}
	// Protocols of the test traffic.
	Protocols = []string{"icmp", "udp", "tcp"}
)

// Row is one question to the wire: a class of traffic between two nodes.
type Row struct {
	Class    string `json:"class"`
	From     string `json:"from"` // node
	To       string `json:"to"`   // node
	Family   string `json:"family"`
	Protocol string `json:"protocol"`

	source, destination End
}

// End is where traffic of a row starts or ends.
type End struct {
	Place     string // "n1" or "n1/p2"
	Namespace string
	Address   netip.Addr
}

// Ends returns where the traffic starts and where it ends.
func (r Row) Ends() (source, destination End) { return r.source, r.destination }

// Filter selects rows; an empty list selects all.
type Filter struct {
	Classes, Families, Protocols []string
	From, To                     []string // nodes
}

func (f Filter) accepts(r Row) bool {
	for _, field := range []struct {
		allowed []string
		value   string
	}{{f.Classes, r.Class}, {f.Families, r.Family}, {f.Protocols, r.Protocol}, {f.From, r.From}, {f.To, r.To}} {
		if len(field.allowed) > 0 && !slices.Contains(field.allowed, field.value) {
			return false
		}
	}
	return true
}

// Rows returns every row of a lab that the filter accepts: ordered pairs of nodes × classes × families
// × protocols. In a lab without pods only hosts talk. Traffic leaves the first pod of a node and goes
// to the last.
func Rows(topology lab.Topology, filter Filter) []Row {
	var rows []Row
	for _, from := range topology.Nodes {
		for _, to := range topology.Others(from.Name) {
			rows = append(rows, pairRows(from, to, filter)...)
		}
	}
	return rows
}

func pairRows(from, to lab.Node, filter Filter) []Row {
	var rows []Row
	for _, class := range Classes {
		for f, family := range Families {
			source, destination, ok := endpoints(class, from, to, f)
			if !ok {
				continue
			}
			for _, protocol := range Protocols {
				row := Row{Class: class, From: from.Name, To: to.Name, Family: family, Protocol: protocol, source: source, destination: destination}
				if filter.accepts(row) {
					rows = append(rows, row)
				}
			}
		}
	}
	return rows
}

// endpoints returns both ends of a row; family is an index into Families and into the address lists
// of a topology. ok is false where the class needs a pod and there is none.
func endpoints(class string, from, to lab.Node, family int) (source, destination End, ok bool) {
	host := func(n lab.Node) End { return End{n.Name, n.Namespace, n.Addresses[family]} }
	pod := func(n lab.Node, i int) End {
		p := n.Pods[i]
		return End{n.Name + "/" + p.Name, p.Namespace, p.Addresses[family]}
	}
	if class != Classes[0] && (len(from.Pods) == 0 || len(to.Pods) == 0) {
		return source, destination, false
	}
	source, destination = host(from), host(to)
	if class == "pod-host" || class == "pod-pod" {
		source = pod(from, 0)
	}
	if class == "host-pod" || class == "pod-pod" {
		destination = pod(to, len(to.Pods)-1)
	}
	return source, destination, true
}

// pair is two nodes in the order of their names' first appearance, whichever of them sends.
type pair struct{ a, b string }

func (r Row) pair() pair {
	if r.From < r.To {
		return pair{r.From, r.To}
	}
	return pair{r.To, r.From}
}
