package identity

import "strconv"

// Number is what the datapath carries instead of labels.
type Number uint32

// The reserved numbers are those that the field knows.
const (
	Unknown       Number = 0 // nothing is known of the address
	Host          Number = 1 // this machine
	World         Number = 2 // outside of the cluster
	Unmanaged     Number = 3 // in the cluster, and nobody gave labels
	Health        Number = 4 // health endpoint of a machine
	Init          Number = 5 // workload whose labels are not known yet
	RemoteNode    Number = 6 // another machine of the cluster
	KubeAPIServer Number = 7 // another machine of the cluster, which runs the API server
	Ingress       Number = 8 // ingress proxy of a machine
)

// The local numbers: bit 24 is the scope that the field reserves for numbers which mean something on
// this machine only. A local number must never be compared with another machine's.
const (
	LocalMin Number = 1 << 24
	LocalMax Number = 1<<25 - 1
)

var names = [...]string{
	Unknown:       "unknown",
	Host:          "host",
	World:         "world",
	Unmanaged:     "unmanaged",
	Health:        "health",
	Init:          "init",
	RemoteNode:    "remote-node",
	KubeAPIServer: "kube-apiserver",
	Ingress:       "ingress",
}

// IsLocal reports whether n was allocated on this machine.
func (n Number) IsLocal() bool { return LocalMin <= n && n <= LocalMax }

// String returns the name of a reserved number and the digits of any other.
func (n Number) String() string {
	if int(n) < len(names) {
		return names[n]
	}
	return strconv.FormatUint(uint64(n), 10)
}
