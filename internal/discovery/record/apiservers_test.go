package record

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addrPorts(texts ...string) []netip.AddrPort {
	var list []netip.AddrPort
	for _, text := range texts {
		list = append(list, netip.MustParseAddrPort(text))
	}
	return list
}

var sameAddrPort = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

func TestUnmarshalAPIServers(t *testing.T) {
	for _, test := range []struct {
		name, text string
		want       []netip.AddrPort
		problem    string // part of it
	}{
		{name: "two families, in order", text: "version: 1\nendpoints:\n  - \"[fd00::1]:6443\"\n  - 10.0.0.1:6443\n", want: addrPorts("10.0.0.1:6443", "[fd00::1]:6443")},
		{name: "none", text: "version: 1\nendpoints: []\n"},
		{name: "unknown version", text: "version: 2\nendpoints: []\n", problem: "apiserver.yaml:1:10: version: 2 is not understood here"},
		{name: "no port", text: "version: 1\nendpoints:\n  - 10.0.0.1\n", problem: "apiserver.yaml:3:5: endpoints[0]"},
		{name: "port 0", text: "version: 1\nendpoints:\n  - 10.0.0.1:0\n", problem: "endpoints[0]: port 0"},
		{name: "a name", text: "version: 1\nendpoints:\n  - kube.example:6443\n", problem: "endpoints[0]"},
		{name: "loopback", text: "version: 1\nendpoints:\n  - 127.0.0.1:6443\n", problem: "endpoints[0]: 127.0.0.1 cannot be reached"},
		{name: "twice", text: "version: 1\nendpoints:\n  - 10.0.0.1:6443\n  - 10.0.0.1:6443\n", problem: "apiserver.yaml:4:5: endpoints[1]: 10.0.0.1:6443 is there twice"},
		{name: "unknown key", text: "version: 1\nendpoints: []\nendpoint: []\n", problem: "endpoints"},
		{name: "half-written", text: "version: 1\nendpoints:\n  - 10.0.0.1:64", problem: "the last line has no end"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := UnmarshalAPIServers("apiserver.yaml", []byte(test.text))
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Errorf("error %v, want %q in it", err, test.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, sameAddrPort, cmp.Transformer("empty", func(l []netip.AddrPort) []netip.AddrPort { return append([]netip.AddrPort{}, l...) })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMarshalAPIServersIsReadBack(t *testing.T) {
	want := addrPorts("10.0.0.1:6443", "[fd00::1]:6443")
	got, err := UnmarshalAPIServers("apiserver.yaml", MarshalAPIServers(want))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, sameAddrPort); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
}

func FuzzUnmarshalAPIServers(f *testing.F) {
	f.Add(string(MarshalAPIServers(addrPorts("10.0.0.1:6443", "[fd00::1]:6443"))))
	f.Add("version: 1\nendpoints:\n  - 10.0.0.1:6443\n")
	f.Fuzz(func(t *testing.T, text string) {
		servers, err := UnmarshalAPIServers("apiserver.yaml", []byte(text))
		if err != nil {
			return
		}
		again, err := UnmarshalAPIServers("apiserver.yaml", MarshalAPIServers(servers))
		if err != nil || len(again) != len(servers) {
			t.Errorf("accepted %v, read back %v, %v", servers, again, err)
		}
	})
}
