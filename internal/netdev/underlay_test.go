package netdev

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine is the links of a node that has about everything: a bond with a VLAN, a bridge with a port,
// a CNI's devices, kube-proxy's, a container engine's, a VPN, and Warren's own.
var machine = []Link{
	{Index: 1, Name: "lo", Addrs: prefixes("127.0.0.1/8", "192.168.99.1/32", "::1/128")},
	{Index: 2, Name: "eth0", Addrs: prefixes("10.0.0.1/24", "fd00::1/64", "fe80::1/64")},
	{Index: 3, Name: "eth1", Addrs: prefixes("10.1.0.1/24")},
	{Index: 4, Name: "eth2", Master: 6},
	{Index: 5, Name: "eth3", Master: 6},
	{Index: 6, Name: "bond0", Kind: "bond"},
	{Index: 7, Name: "bond0.100", Kind: "vlan", Addrs: prefixes("10.2.0.1/24")},
	{Index: 8, Name: "br0", Kind: "bridge", Addrs: prefixes("10.3.0.1/24")},
	{Index: 9, Name: "eth4", Master: 8, Addrs: prefixes("10.9.0.1/24")},
	{Index: 10, Name: "eth5", Master: 11, Addrs: prefixes("10.4.0.1/24")},
	{Index: 11, Name: "tenant", Kind: "vrf"},
	{Index: 12, Name: "cni0", Kind: "bridge", Addrs: prefixes("10.244.0.1/24")},
	{Index: 13, Name: "veth9f3c", Kind: "veth", Master: 12},
	{Index: 14, Name: "cali1234", Kind: "veth", Addrs: prefixes("169.254.1.1/32")},
	{Index: 15, Name: "flannel.1", Kind: "vxlan", Addrs: prefixes("10.244.0.0/32")},
	{Index: 16, Name: "kube-ipvs0", Kind: "dummy", Addrs: prefixes("10.96.0.1/32", "10.0.0.1/32")},
	{Index: 17, Name: "docker0", Kind: "bridge", Addrs: prefixes("172.17.0.1/16")},
	{Index: 18, Name: "br-8a1e", Kind: "bridge", Addrs: prefixes("172.18.0.1/16")},
	{Index: 19, Name: "veth77aa", Kind: "veth", Master: 18},
	{Index: 20, Name: "vethd00f", Kind: "veth", Addrs: prefixes("10.244.7.1/32")},
	{Index: 21, Name: "tun0", Kind: "tun", L3: true, Addrs: prefixes("10.8.0.2/24")},
	{Index: 22, Name: "wg0", Kind: "wireguard", L3: true, Addrs: prefixes("10.7.0.1/24")},
	{Index: 23, Name: "overlay0", Kind: "geneve", Addrs: prefixes("10.6.0.1/24")},
	{Index: 24, Name: "dummy0", Kind: "dummy", Addrs: prefixes("192.168.99.2/32")},
	{Index: 25, Name: "warren0", Kind: "tun", L3: true},
}

func TestUnderlays(t *testing.T) {
	tests := []struct {
		name     string
		addrs    []netip.Addr
		patterns []string
		want     []string
		err      []string // parts of the error
	}{
		{name: "the device that carries the address", addrs: addrs("10.0.0.1"), want: []string{"eth0"}},
		{name: "by its IPv6 address", addrs: addrs("fd00::1"), want: []string{"eth0"}},
		{name: "one device for two addresses", addrs: addrs("10.0.0.1", "fd00::1"), want: []string{"eth0"}},
		{name: "two devices, by index", addrs: addrs("10.1.0.1", "10.0.0.1"), want: []string{"eth0", "eth1"}},
		{name: "a VLAN on a bond, not what is below", addrs: addrs("10.2.0.1"), want: []string{"bond0.100"}},
		{name: "a bridge, not its port", addrs: addrs("10.3.0.1"), want: []string{"br0"}},
		{name: "a member of a VRF", addrs: addrs("10.4.0.1"), want: []string{"eth5"}},
		{name: "a VPN that the node's address is on", addrs: addrs("10.8.0.2"), want: []string{"tun0"}},
		{name: "address not there yet beside one that is", addrs: addrs("10.0.0.1", "10.0.0.77"), want: []string{"eth0"}},
		{name: "by full name", patterns: []string{"eth1"}, want: []string{"eth1"}},
		{name: "by wildcard, without ports", patterns: []string{"eth*"}, want: []string{"eth0", "eth1", "eth5"}},
		{name: "by wildcard for all, without what must not be guessed", patterns: []string{"*"},
			want: []string{"eth0", "eth1", "bond0", "bond0.100", "br0", "eth5", "tenant"}},
		{name: "address and pattern together", addrs: addrs("10.0.0.1"), patterns: []string{"bond0"}, want: []string{"eth0", "bond0"}},
		{name: "address on the loopback, devices named", addrs: addrs("192.168.99.1"), patterns: []string{"eth[01]"}, want: []string{"eth0", "eth1"}},
		{name: "address on a dummy, devices named", addrs: addrs("192.168.99.2"), patterns: []string{"eth0"}, want: []string{"eth0"}},
		{name: "pattern that matches nothing beside an address", addrs: addrs("10.0.0.1"), patterns: []string{"ib*"}, want: []string{"eth0"}},

		{name: "address that is nowhere", addrs: addrs("10.0.0.77"), err: []string{"no underlay device", "10.0.0.77", "eth0 (10.0.0.1 fd00::1)", "addresses:", "underlay:"}},
		{name: "address on the loopback only", addrs: addrs("192.168.99.1"), err: []string{"no underlay device"}},
		{name: "address on a dummy only", addrs: addrs("192.168.99.2"), err: []string{"no underlay device"}},
		{name: "address of a CNI bridge", addrs: addrs("10.244.0.1"), err: []string{"10.244.0.1 is on cni0", "CNI", "addresses:"}},
		{name: "external address that kube-proxy binds too", addrs: addrs("10.0.0.1"), want: []string{"eth0"}},
		{name: "address of a Service", addrs: addrs("10.0.0.1", "10.96.0.1"), err: []string{"10.96.0.1 is on kube-ipvs0"}},
		{name: "address of a WireGuard device of others", addrs: addrs("10.7.0.1"), err: []string{"10.7.0.1 is on wg0", "tunnel (wireguard)"}},
		{name: "address of an overlay", addrs: addrs("10.6.0.1"), err: []string{"10.6.0.1 is on overlay0", "tunnel (geneve)"}},
		{name: "address on a port", addrs: addrs("10.9.0.1"), err: []string{"10.9.0.1 is on eth4", "a port of br0"}},
		{name: "a port by full name", patterns: []string{"eth2"}, err: []string{"underlay: eth2 cannot be one, it is a port of bond0"}},
		{name: "the loopback by full name", patterns: []string{"lo"}, err: []string{"lo cannot be one", "loopback"}},
		{name: "Warren's device by full name", patterns: []string{"warren0"}, err: []string{"warren0 cannot be one", "Warren's own"}},
		{name: "pod devices by wildcard", patterns: []string{"cali*"}, err: []string{"no underlay device", `["cali*"]`}},
		{name: "a pattern that is none, and a wrong address: both are named", addrs: addrs("172.17.0.1"), patterns: []string{"eth["},
			err: []string{`"eth["`, "172.17.0.1 is on docker0"}},
		{name: "nothing asked for", err: []string{"no underlay device"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := Underlays(machine, test.addrs, test.patterns)
			if diff := cmp.Diff(test.want, namesOf(got)); diff != "" {
				t.Errorf("underlays (-want +got):\n%s", diff)
			}
			checkError(t, err, test.err)
		})
	}
}

func TestUnderlaysWhateverTheOrder(t *testing.T) {
	reversed := slices.Clone(machine)
	slices.Reverse(reversed)
	got, err := Underlays(reversed, addrs("10.1.0.1", "10.0.0.1"), []string{"bond*"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"eth0", "eth1", "bond0", "bond0.100"}, namesOf(got)); diff != "" {
		t.Errorf("underlays (-want +got):\n%s", diff)
	}
}

func namesOf(links []Link) []string {
	var names []string
	for _, link := range links {
		names = append(names, link.Name)
	}
	return names
}

// checkError wants no error for no parts, and otherwise one that contains each.
func checkError(t *testing.T, err error, parts []string) {
	t.Helper()
	if (err != nil) != (len(parts) > 0) {
		t.Fatalf("error %v, want one with %q", err, parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}
