package kube

import (
	"encoding/json"
	"net/netip"
	"testing"

	"warren/internal/cluster"
)

// parse reads an object as the API server sends it.
func parse(t testing.TB, text string) *object {
	t.Helper()
	var o object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

// shown returns a node as the API server sends its WarrenNode; owner is the UID of the Node it belongs to, "" for none.
func shown(node cluster.Node, owner string) *object {
	o := &object{Spec: encode(specOf(node))}
	o.Name = node.ID.Name
	if owner != "" {
		o.OwnerReferences = ownedBy(node.ID.Name, owner)
	}
	return o
}

func addrs(texts ...string) (list []netip.Addr) {
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}
