package datapath

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/datapath/model"
)

func contents[K comparable, V any](t testing.TB, d *Datapath, name string) map[K]V {
	t.Helper()
	all := map[K]V{}
	if err := readAll(d.maps[name], func(key K, value V) { all[key] = value }); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSetServers(t *testing.T) {
	d := open(t, Options{MaxAddresses: 1, MaxPrefixes: 1})
	many := func(from, count int) (servers []netip.AddrPort) {
		for i := range count {
			n := from + i
			servers = append(servers, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 6443))
		}
		return servers
	}
	lists := [][]netip.AddrPort{
		{netip.MustParseAddrPort("10.0.0.1:6443"), netip.MustParseAddrPort("[fd00::1]:2379")},
		{netip.MustParseAddrPort("10.0.0.1:6443"), netip.MustParseAddrPort("10.0.0.1:2379")},
		{netip.MustParseAddrPort("10.0.0.1:6443"), netip.MustParseAddrPort("[::ffff:10.0.0.1]:6443")},
		many(0, maxServers), many(maxServers, maxServers), nil,
	}
	for i, list := range lists {
		want := map[server]uint32{}
		for _, s := range list {
			want[server{Address: s.Addr().As16(), Port: [2]byte{byte(s.Port() >> 8), byte(s.Port())}}] = 0
		}
		for range 2 {
			if err := d.SetServers(list); err != nil {
				t.Fatalf("list %d: %v", i, err)
			}
			if diff := cmp.Diff(want, contents[server, uint32](t, d, mapServers)); diff != "" {
				t.Errorf("list %d (-want +got):\n%s", i, diff)
			}
		}
	}
	for _, bad := range [][]netip.AddrPort{{{}}, {netip.MustParseAddrPort("10.0.0.1:0")}, many(0, maxServers+1)} {
		if err := d.SetServers(bad); err == nil {
			t.Errorf("accepted %v", bad[0])
		}
	}
}

func TestSetExemptions(t *testing.T) {
	d := open(t, Options{MaxAddresses: 1, MaxPrefixes: 1})
	exempt := func(prefix string, port uint16) model.Exemption {
		return model.Exemption{Prefix: netip.MustParsePrefix(prefix), Protocol: protoTCP, Port: port}
	}
	ports := func(ports ...uint16) string { return fmt.Sprint(ports) }
	tests := []struct {
		name string
		list []model.Exemption
		want map[netip.Prefix]string
	}{
		{"none", nil, map[netip.Prefix]string{}},
		{"one", []model.Exemption{exempt("10.0.0.0/8", 1)}, map[netip.Prefix]string{netip.MustParsePrefix("10.0.0.0/8"): ports(1)}},
		{"two of one prefix, and what is around it", []model.Exemption{exempt("10.1.0.0/16", 2), exempt("10.0.0.0/8", 1), exempt("10.1.0.0/16", 3)},
			map[netip.Prefix]string{netip.MustParsePrefix("10.0.0.0/8"): ports(1), netip.MustParsePrefix("10.1.0.0/16"): ports(2, 1, 3)}},
		{"the inner one gone", []model.Exemption{exempt("10.0.0.0/8", 1)}, map[netip.Prefix]string{netip.MustParsePrefix("10.0.0.0/8"): ports(1)}},
		{"families do not contain each other", []model.Exemption{exempt("0.0.0.0/0", 4), exempt("fd00::/8", 6)},
			map[netip.Prefix]string{netip.MustParsePrefix("0.0.0.0/0"): ports(4), netip.MustParsePrefix("fd00::/8"): ports(6)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for range 2 {
				if err := d.SetExemptions(test.list); err != nil {
					t.Fatal(err)
				}
				got := map[netip.Prefix]string{}
				for key, value := range contents[prefixKey, exemptions](t, d, mapExemptions) {
					var all []uint16
					for _, e := range value.List[:value.Count] {
						all = append(all, e.Port)
					}
					got[key.prefix()] = fmt.Sprint(all)
				}
				if diff := cmp.Diff(test.want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
					t.Errorf("exempt (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestExemptionsAreReplaced: as many as there may be, by as many others.
func TestExemptionsAreReplaced(t *testing.T) {
	d := open(t, Options{MaxAddresses: 1, MaxPrefixes: 1})
	list := func(first byte, count int) (all []model.Exemption) {
		for i := range count {
			all = append(all, model.Exemption{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{first, byte(i)}), 16)})
		}
		return all
	}
	for _, first := range []byte{10, 11, 10} {
		if err := d.SetExemptions(list(first, model.MaxExemptions)); err != nil {
			t.Fatal(err)
		}
		if got := len(contents[prefixKey, exemptions](t, d, mapExemptions)); got != model.MaxExemptions {
			t.Errorf("%d prefixes in the map", got)
		}
	}
	if err := d.SetExemptions(list(12, model.MaxExemptions+1)); err == nil || !strings.Contains(err.Error(), "65") {
		t.Errorf("one too many: %v", err)
	}
	if err := d.SetExemptions([]model.Exemption{{Prefix: netip.MustParsePrefix("::/0")}}); err == nil || !strings.Contains(err.Error(), "::/0") {
		t.Errorf("all of IPv6, and so IPv4: %v", err)
	}
}
