package cluster

import (
	"net/netip"
	"strings"
	"testing"
)

func goodNode() Node {
	return Node{
		ID:        NodeID{Cluster: DefaultCluster, Name: "n1"},
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")},
		Prefixes:  []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("fd42:0:0:1::/64")},
		Keys:      []Key{{Public: PublicKey{1}, Epoch: 1, Port: DefaultPort}},
	}
}

func TestNodeValidate(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Node)
		want   string // part of the error, "" for none
	}{
		{"good", func(*Node) {}, ""},
		{"no name", func(n *Node) { n.ID.Name = "" }, "name: empty"},
		{"upper case", func(n *Node) { n.ID.Name = "N1" }, "name: "},
		{"path in the name", func(n *Node) { n.ID.Name = "../n1" }, "name: "},
		{"long name", func(n *Node) { n.ID.Name = strings.Repeat("a", 254) }, "254 characters"},
		{"no cluster", func(n *Node) { n.ID.Cluster = "" }, "cluster: empty"},
		{"no address", func(n *Node) { n.Addresses = nil }, "addresses: none"},
		{"invalid address", func(n *Node) { n.Addresses[1] = netip.Addr{} }, "addresses[1]: not an address"},
		{"loopback", func(n *Node) { n.Addresses[0] = netip.MustParseAddr("127.0.0.1") }, "addresses[0]: 127.0.0.1 cannot be reached"},
		{"mapped", func(n *Node) { n.Addresses[0] = netip.MustParseAddr("::ffff:10.0.0.1") }, "write 10.0.0.1"},
		{"zone", func(n *Node) { n.Addresses[0] = netip.MustParseAddr("fd00::1%eth0") }, "has a zone"},
		{"multicast", func(n *Node) { n.Addresses[0] = netip.MustParseAddr("ff02::1") }, "cannot be reached"},
		{"broadcast", func(n *Node) { n.Addresses[0] = netip.MustParseAddr("255.255.255.255") }, "broadcast"},
		{"address twice", func(n *Node) { n.Addresses[1] = n.Addresses[0] }, "addresses[1]: 10.0.0.1 is already in addresses[0]"},
		{"everything", func(n *Node) { n.Prefixes[0] = netip.MustParsePrefix("0.0.0.0/0") }, "every address"},
		{"unmasked prefix", func(n *Node) { n.Prefixes[0] = netip.MustParsePrefix("10.42.1.7/24") }, "write 10.42.1.0/24"},
		{"prefix twice", func(n *Node) { n.Prefixes[1] = n.Prefixes[0] }, "prefixes[1]: 10.42.1.0/24 is already in prefixes[0]"},
		{"invalid prefix", func(n *Node) { n.Prefixes[0] = netip.Prefix{} }, "prefixes[0]: not a prefix"},
		{"no key", func(n *Node) { n.Keys = nil }, "keys: none"},
		{"zero key", func(n *Node) { n.Keys[0].Public = PublicKey{} }, "all-zero key"},
		{"epoch 0", func(n *Node) { n.Keys[0].Epoch = 0 }, "epochs count from 1"},
		{"epoch twice", func(n *Node) { n.Keys = append(n.Keys, n.Keys[0]) }, "keys[1].epoch: 1 is used twice"},
		{"port 0", func(n *Node) { n.Keys[0].Port = 0 }, "the default is 51880"},
	} {
		t.Run(test.name, func(t *testing.T) {
			node := goodNode()
			test.change(&node)
			err := node.Validate()
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestNodeValidateReportsEverything(t *testing.T) {
	err := Node{}.Validate()
	for _, field := range []string{"name", "cluster", "addresses", "keys"} {
		if err == nil || !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}

func TestCurrentKeyIsTheOneWithTheHighestEpoch(t *testing.T) {
	node := Node{Keys: []Key{{Epoch: 1}, {Epoch: 3}, {Epoch: 2}}}
	if key, ok := node.CurrentKey(); !ok || key.Epoch != 3 {
		t.Errorf("epoch %d, %t", key.Epoch, ok)
	}
	if _, ok := (Node{}).CurrentKey(); ok {
		t.Error("a node without keys has a current one")
	}
}

func TestKeyIDIsNeverNoEncryption(t *testing.T) {
	for _, test := range []struct {
		epoch uint32
		want  KeyID
	}{{1, 1}, {2, 2}, {255, 255}, {256, 1}, {1<<32 - 1, 255}} {
		if got := KeyIDOf(test.epoch); got != test.want || got == NoEncryption {
			t.Errorf("epoch %d: %d, want %d", test.epoch, got, test.want)
		}
	}
}

func TestCanonicalPrefix(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"10.42.1.7/24", "10.42.1.0/24"},
		{"::ffff:10.42.1.7/120", "10.42.1.0/24"},
		{"fd00::1/64", "fd00::/64"},
	} {
		if got := CanonicalPrefix(netip.MustParsePrefix(test.in)).String(); got != test.want {
			t.Errorf("%s: %s, want %s", test.in, got, test.want)
		}
	}
}

func TestSourcesAreRankedAndNamed(t *testing.T) {
	order := []string{"kube-apiserver", "local", "kvstore", "custom-resource", "kubernetes", "directory", "file", "generated", "restored"}
	for i, name := range order {
		source, err := ParseSource(name)
		if err != nil || int(source) != i+1 || source.String() != name {
			t.Errorf("%s: rank %d, %v", name, source, err)
		}
	}
	if _, err := ParseSource("rumour"); err == nil {
		t.Error("an unknown source is accepted")
	}
}
