package etcd

import (
	"strings"

	"warren/internal/cluster"
)

// layout says which key is whose. Its value is the prefix, without a slash at the end.
type layout string

// all is what every key begins with.
func (l layout) all() string { return string(l) + "/" }

func (l layout) nodes() string { return string(l) + "/nodes/" }

func (l layout) apiServers() string { return string(l) + "/apiservers" }

func (l layout) node(id cluster.NodeID) string { return l.nodes() + id.Name }

// machineOf returns the name of the machine that a key belongs to.
func (l layout) machineOf(key string) (name string, ok bool) {
	return strings.CutPrefix(key, l.nodes())
}

// withdrawn is what the key of a machine says that has left.
const withdrawn = "withdrawn"

func isWithdrawn(text []byte) bool {
	return len(text) <= len(withdrawn)+2 && strings.TrimSpace(string(text)) == withdrawn
}
