package kube

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record/recordtest"
)

// show writes events one a line, for comparison.
func show(events []discovery.Event) string {
	var text strings.Builder
	for _, e := range events {
		fmt.Fprintf(&text, "%s", e.Kind)
		switch e.Kind {
		case discovery.Upsert:
			fmt.Fprintf(&text, " %s %s", e.ID, e.Node.Addresses[0])
		case discovery.Delete:
			fmt.Fprintf(&text, " %s", e.ID)
		case discovery.Local:
			fmt.Fprintf(&text, " %v %v", e.Local.Addresses, e.Local.Prefixes)
		case discovery.APIServers:
			fmt.Fprintf(&text, " %v", e.APIServers)
		case discovery.Settings:
			fmt.Fprintf(&text, "\n%s", strings.TrimSuffix(lines(e.Settings), "\n"))
		case discovery.Problems:
			for _, p := range e.Problems {
				fmt.Fprintf(&text, "\n  %s", p)
			}
		}
		text.WriteString("\n")
	}
	return text.String()
}

// story is a sequence of pictures, each of which is the one before with something changed.
type story struct {
	name  string
	steps []func(*picture)
}

func withRecords(nodes ...cluster.Node) func(*picture) {
	return func(p *picture) {
		before := p.records
		p.records = map[string]entry{}
		for _, n := range nodes {
			p.records[n.ID.Name] = entries(p.self)(shown(n, ""), before[n.ID.Name])
		}
	}
}

// broken makes a WarrenNode say what is no record.
func broken(name string) func(*picture) {
	return func(p *picture) {
		o := &object{Spec: []byte(`{"spoilt":true}`)}
		o.Name = name
		p.records = maps.Clone(p.records)
		p.records[name] = entries(p.self)(o, p.records[name])
	}
}

func ownNode(labels map[string]string, cidrs ...string) func(*picture) {
	return func(p *picture) {
		p.nodes = map[string]node{p.self: {uid: "1", labels: labels, addresses: addrs("10.0.0.1"), podCIDRs: prefixes(cidrs...)}}
	}
}

func noNode(p *picture) { p.nodes = map[string]node{} }

func pods(texts ...string) func(*picture) {
	return func(p *picture) {
		p.pods = map[string][]netip.Addr{}
		for _, text := range texts {
			p.pods["default/"+text] = addrs(text)
		}
	}
}

func servers(texts ...string) func(*picture) {
	return func(p *picture) {
		p.servers = map[string][]netip.AddrPort{}
		for i, text := range texts {
			p.servers[fmt.Sprintf("default/kubernetes-%d", i%2)] = append(p.servers[fmt.Sprintf("default/kubernetes-%d", i%2)], netip.MustParseAddrPort(text))
		}
	}
}

func config(spec string) func(*picture) {
	return func(p *picture) {
		before := p.configs[configName]
		p.configs = map[string]configuration{}
		if spec != "" {
			p.configs[configName] = decodeConfig(&object{Spec: []byte(spec)}, before)
		}
	}
}

func away(messages ...string) func(*picture) {
	return func(p *picture) {
		p.troubles = nil
		for _, m := range messages {
			p.troubles = append(p.troubles, discovery.Problem{Where: "https://10.0.0.1:6443", Message: m, Remedy: "restore it"})
		}
	}
}

func together(changes ...func(*picture)) func(*picture) {
	return func(p *picture) {
		for _, change := range changes {
			change(p)
		}
	}
}

// TestStories holds the events of named sequences of pictures against testdata/stories.
func TestStories(t *testing.T) {
	n1, n2, n3 := recordtest.Sample("n1", 1), recordtest.Sample("n2", 2), recordtest.Sample("n3", 3)
	moved := recordtest.Sample("n3", 2)
	elsewhere := n2
	elsewhere.ID.Cluster = "other"
	begin := together(withRecords(n1, n2), ownNode(nil, "10.244.1.0/24"), pods("10.244.1.5"), servers("10.0.0.1:6443"), config(""))
	stories := []story{
		{"one-list-after-the-other", []func(*picture){func(*picture) {}, servers("10.0.0.1:6443"), withRecords(n1, n2), ownNode(nil, "10.244.1.0/24"), config(`{"mode":"strict"}`), pods()}},
		{"all-lists-at-once", []func(*picture){begin, func(*picture) {}}},
		{"an-empty-cluster", []func(*picture){together(withRecords(), ownNode(nil), pods(), servers(), config(""))}},
		{"nodes-join-change-and-leave", []func(*picture){begin, withRecords(n1, n2, n3), withRecords(n1, moved), withRecords(n1)}},
		{"a-node-changes-its-cluster", []func(*picture){begin, withRecords(n1, elsewhere)}},
		{"edited-to-garbage", []func(*picture){begin, broken("n2"), withRecords(n1, n2)}},
		{"garbage-deleted", []func(*picture){begin, broken("n2"), withRecords(n1)}},
		{"garbage-from-the-start", []func(*picture){together(begin, withRecords(n1), broken("n2")), withRecords(n1, n2)}},
		{"api-server-lost-and-found", []func(*picture){begin, away("API server not reachable since 3:14"), away()}},
		{"api-server-moves", []func(*picture){begin, servers("10.0.0.2:6443", "10.0.0.1:6443"), servers("203.0.113.9:443"), servers("203.0.113.9:443"), servers()}},
		{"pods-without-a-pod-cidr", []func(*picture){together(begin, ownNode(nil)), pods("10.244.1.5", "10.244.1.4"), pods(), ownNode(nil, "10.244.1.0/24")}},
		{"the-own-node-is-deleted-and-comes-back", []func(*picture){begin, noNode, ownNode(nil, "10.244.7.0/24")}},
		{"the-own-node-is-late", []func(*picture){together(begin, noNode), ownNode(nil, "10.244.1.0/24")}},
		{"settings-follow-labels", []func(*picture){together(begin, config(`{"mode":"strict","nodes":[{"selector":{"matchLabels":{"zone":"b"}},"mode":"observe"}]}`)),
			ownNode(map[string]string{"zone": "b"}, "10.244.1.0/24"), noNode, config(`{"mode":[]}`), config("")}},
	}
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			now := picture{self: "n1"}
			var believed state
			var text strings.Builder
			for i, change := range s.steps {
				change(&now)
				var events []discovery.Event
				believed, events = believed.next(now)
				fmt.Fprintf(&text, "step %d\n%s", i+1, show(events))
			}
			recordtest.Golden(t, "testdata/stories/"+s.name+".golden", text.String())
		})
	}
}

// TestOrderOfListsDoesNotMatter: whatever list comes first, the last state is the same, Synced comes once and last, and
// what is said of the machine comes before it.
func TestOrderOfListsDoesNotMatter(t *testing.T) {
	lists := []func(*picture){withRecords(recordtest.Sample("n1", 1), recordtest.Sample("n2", 2)), ownNode(nil, "10.244.1.0/24"), pods("10.244.1.5"), servers("10.0.0.1:6443"), config(`{"mode":"strict"}`)}
	var want []string
	for order := range permutations(len(lists)) {
		now, believed, seen := picture{self: "n1"}, state{}, []string{}
		for i, list := range order {
			lists[list](&now)
			var events []discovery.Event
			believed, events = believed.next(now)
			for _, e := range events {
				seen = append(seen, show([]discovery.Event{e}))
			}
			if synced := slices.ContainsFunc(events, func(e discovery.Event) bool { return e.Kind == discovery.Synced }); synced != (i == len(lists)-1) {
				t.Fatalf("order %v: synced after list %d: %v", order, i+1, synced)
			}
		}
		if seen[len(seen)-1] != "synced\n" {
			t.Fatalf("order %v: last comes %s", order, seen[len(seen)-1])
		}
		slices.Sort(seen)
		if want == nil {
			want = seen
		}
		if !slices.Equal(want, seen) {
			t.Fatalf("order %v gives %v, another order %v", order, seen, want)
		}
	}
}

// permutations yields every order of n things.
func permutations(n int) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		order := make([]int, n)
		for i := range order {
			order[i] = i
		}
		var place func(int) bool
		place = func(at int) bool {
			if at == n {
				return yield(order)
			}
			for i := at; i < n; i++ {
				order[at], order[i] = order[i], order[at]
				if !place(at + 1) {
					return false
				}
				order[at], order[i] = order[i], order[at]
			}
			return true
		}
		place(0)
	}
}
