package dir

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/discovery"
	"warren/internal/discovery/record"
)

func addrPorts(texts ...string) []netip.AddrPort {
	var list []netip.AddrPort
	for _, text := range texts {
		list = append(list, netip.MustParseAddrPort(text))
	}
	return list
}

var sameAddrPort = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })

// TestAPIServersFollowTheirFile plays the life of the file, as of a record's.
func TestAPIServersFollowTheirFile(t *testing.T) {
	list := func(servers ...string) *content {
		return &content{data: record.MarshalAPIServers(addrPorts(servers...))}
	}
	believed := state{}
	for _, step := range []struct {
		name     string
		file     *content
		lost     *discovery.Problem
		want     []netip.AddrPort
		problems int
	}{
		{name: "no file"},
		{name: "one server", file: list("10.0.0.1:6443"), want: addrPorts("10.0.0.1:6443")},
		{name: "half-written", file: &content{data: []byte("version: 1\nend")}, want: addrPorts("10.0.0.1:6443"), problems: 1},
		{name: "the server moved", file: list("10.0.0.2:6443"), want: addrPorts("10.0.0.2:6443")},
		{name: "folder lost", lost: &discovery.Problem{Message: "gone"}, want: addrPorts("10.0.0.2:6443"), problems: 1},
		{name: "folder back, file gone"},
	} {
		var events []discovery.Event
		before := believed.Servers.List()
		believed, events = believed.next(snapshot{path: "/records", files: map[string]content{}, apiServers: step.file, lost: step.lost})
		if diff := cmp.Diff(step.want, believed.Servers.List(), sameAddrPort); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		if len(believed.Problems) != step.problems {
			t.Errorf("%s: problems %v", step.name, believed.Problems)
		}
		emitted := false
		for _, event := range events {
			if event.Kind == discovery.APIServers {
				emitted = true
				if diff := cmp.Diff(step.want, event.APIServers, sameAddrPort); diff != "" {
					t.Errorf("%s, event (-want +got):\n%s", step.name, diff)
				}
			}
		}
		if changed := !cmp.Equal(before, step.want, sameAddrPort); emitted != changed {
			t.Errorf("%s: emitted %t, changed %t", step.name, emitted, changed)
		}
	}
}
