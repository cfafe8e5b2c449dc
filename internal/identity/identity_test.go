package identity_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/identity"
)

var prefix = netip.MustParsePrefix("203.0.113.9/32")

func TestOutside(t *testing.T) {
	for _, test := range []struct {
		labels  []string
		outside bool
	}{
		{[]string{"reserved:world"}, true},
		{[]string{"reserved:world", "reserved:kube-apiserver", "cidr:203.0.113.9/32"}, true},
		{[]string{"reserved:world", "site:b"}, false},
		{[]string{"reserved:unmanaged"}, false},
		{[]string{"reserved:remote-node", "reserved:kube-apiserver"}, false},
		{nil, false},
	} {
		if got := identity.Outside(identity.NewLabels(test.labels...)); got != test.outside {
			t.Errorf("%v: outside %t, want %t", test.labels, got, test.outside)
		}
	}
}

// The numbers of the field, and the rules of docs/ipcache.md.
func TestComplete(t *testing.T) {
	const kubeAPIServer, remoteNode = identity.LabelKubeAPIServer, identity.LabelRemoteNode
	const local = identity.LocalMin // stands for any local number
	tests := []struct {
		name   string
		stated []string
		owned  bool
		want   []string
		number identity.Number
	}{
		{"nobody says anything", nil, false, []string{"reserved:unmanaged"}, 3},
		{"a node's pod CIDR", nil, true, []string{"reserved:unmanaged"}, 3},
		{"this machine", []string{"reserved:host"}, true, []string{"reserved:host"}, 1},
		{"this machine runs the API server", []string{"reserved:host", kubeAPIServer}, true, []string{"reserved:host", kubeAPIServer}, 1},
		{"this machine, a stray record says remote", []string{"reserved:host", remoteNode}, true, []string{"reserved:host"}, 1},
		{"this machine, remote and API server", []string{"reserved:host", remoteNode, kubeAPIServer}, true, []string{"reserved:host", kubeAPIServer}, 1},
		{"another machine", []string{remoteNode}, true, []string{remoteNode}, 6},
		{"another machine, refused", []string{remoteNode}, false, []string{remoteNode}, 6},
		{"another machine runs the API server", []string{kubeAPIServer, remoteNode}, true, []string{kubeAPIServer, remoteNode}, 7},
		{"the same from a snapshot of the world", []string{kubeAPIServer, remoteNode, "reserved:world", "cidr:203.0.113.9/32"}, true, []string{kubeAPIServer, remoteNode}, 7},
		{"API server outside", []string{kubeAPIServer}, false, []string{"cidr:203.0.113.9/32", kubeAPIServer, "reserved:world"}, local},
		{"API server outside, in a known CIDR", []string{kubeAPIServer, "cidr:203.0.113.0/24"}, false, []string{"cidr:203.0.113.9/32", kubeAPIServer, "reserved:world"}, local},
		{"API server in a pod", []string{kubeAPIServer}, true, []string{kubeAPIServer, "reserved:unmanaged"}, local},
		{"health", []string{"reserved:health"}, true, []string{"reserved:health"}, 4},
		{"init", []string{"reserved:init"}, true, []string{"reserved:init"}, 5},
		{"ingress", []string{"reserved:ingress"}, true, []string{"reserved:ingress"}, 8},
		{"world", []string{"reserved:world"}, false, []string{"reserved:world"}, 2},
		{"a machine is not the world", []string{"reserved:world", remoteNode}, false, []string{remoteNode}, 6},
		{"what is owned is not the world", []string{"reserved:world"}, true, []string{"reserved:unmanaged"}, 3},
		{"unmanaged is in the cluster", []string{"reserved:unmanaged", "cidr:10.0.0.0/8"}, false, []string{"reserved:unmanaged"}, 3},
		{"a CIDR", []string{"cidr:10.0.0.0/8"}, false, []string{"cidr:10.0.0.0/8", "reserved:world"}, local},
		{"CIDRs, the most specific stays", []string{"cidr:10.0.0.0/8", "cidr:10.1.0.0/16", "cidr:0.0.0.0/0"}, false, []string{"cidr:10.1.0.0/16", "reserved:world"}, local},
		{"CIDRs of one length", []string{"cidr:10.2.0.0/16", "cidr:10.1.0.0/16"}, false, []string{"cidr:10.1.0.0/16", "reserved:world"}, local},
		{"a CIDR that does not parse", []string{"cidr:nonsense", "cidr:10.1.0.0/16"}, false, []string{"cidr:10.1.0.0/16", "reserved:world"}, local},
		{"a pod with labels", []string{"k8s:app=web"}, true, []string{"k8s:app=web"}, local},
		{"labels end being unmanaged", []string{"k8s:app=web", "reserved:unmanaged"}, true, []string{"k8s:app=web"}, local},
		{"labels of a node keep its number", []string{remoteNode, "k8s:zone=a"}, true, []string{"k8s:zone=a", remoteNode}, 6},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			labels := identity.Complete(prefix, identity.NewLabels(test.stated...), test.owned)
			if diff := cmp.Diff(test.want, labels.Strings()); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
			var allocator identity.Allocator
			number := allocator.Acquire(labels)
			if number != test.number && !(test.number == local && number.IsLocal()) {
				t.Errorf("number %s, want %s", number, test.number)
			}
			if again := identity.Complete(prefix, labels, test.owned); again != labels {
				t.Errorf("completed again: %s", again)
			}
		})
	}
}

func TestInheritable(t *testing.T) {
	tests := map[string]struct{ stated, want []string }{
		"nothing":                    {},
		"labels of the prefix":       {[]string{"cidr:10.0.0.0/8", "k8s:zone=a", "reserved:kube-apiserver", "reserved:world"}, []string{"cidr:10.0.0.0/8", "k8s:zone=a", "reserved:kube-apiserver", "reserved:world"}},
		"labels of one address":      {[]string{"reserved:health", "reserved:host", "reserved:ingress", "reserved:init", "reserved:remote-node"}, nil},
		"a machine with more to say": {[]string{"k8s:zone=a", "reserved:remote-node"}, []string{"k8s:zone=a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, identity.Inheritable(identity.NewLabels(test.stated...)).Strings()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNumberString(t *testing.T) {
	want := []string{"unknown", "host", "world", "unmanaged", "health", "init", "remote-node", "kube-apiserver", "ingress", "9"}
	for i, name := range want {
		if got := identity.Number(i).String(); got != name {
			t.Errorf("%d: %s, want %s", i, got, name)
		}
	}
	for number, local := range map[identity.Number]bool{8: false, 1<<24 - 1: false, 1 << 24: true, 1<<25 - 1: true, 1 << 25: false} {
		if number.IsLocal() != local {
			t.Errorf("%d: local %t", number, !local)
		}
	}
}

func TestLabelsText(t *testing.T) {
	labels := identity.NewLabels("reserved:remote-node", "", "k8s:app=web", "reserved:remote-node", "a\x00reserved:host")
	if got, want := labels.String(), "k8s:app=web,reserved:remote-node"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	text, err := json.Marshal([]identity.Labels{labels, {}})
	if err != nil {
		t.Fatal(err)
	}
	if want := `[["k8s:app=web","reserved:remote-node"],[]]`; string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	var back []identity.Labels
	if err := json.Unmarshal(text, &back); err != nil || back[0] != labels || !back[1].IsEmpty() {
		t.Errorf("read back: %v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`["a", 1]`), &labels); err == nil {
		t.Error("a number was read as a label")
	}
}

// Labels against a map: whatever texts come from outside, no label appears that was not given.
func TestPropertyLabelsAreASet(t *testing.T) {
	aLabel := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "a", "b", "a\x00b", "\x00", "reserved:host"}))
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.SliceOf(aLabel).Draw(t, "a"), rapid.SliceOf(aLabel).Draw(t, "b")
		set := func(labels ...string) []string {
			m := map[string]bool{}
			for _, label := range labels {
				if label != "" && !strings.Contains(label, "\x00") {
					m[label] = true
				}
			}
			return slices.Sorted(maps.Keys(m))
		}
		same := func(what string, want []string, got identity.Labels) {
			if !slices.Equal(want, got.Strings()) {
				t.Fatalf("%s: %q, want %q", what, got.Strings(), want)
			}
			if got != identity.NewLabels(want...) || !got.Equal(identity.NewLabels(want...)) {
				t.Fatalf("%s: one set in two forms", what)
			}
		}
		same("new", set(a...), identity.NewLabels(a...))
		same("union", set(append(slices.Clone(a), b...)...), identity.NewLabels(a...).Union(identity.NewLabels(b...)))
		for _, label := range append(slices.Clone(b), "a") {
			if has := slices.Contains(set(a...), label); has != identity.NewLabels(a...).Has(label) {
				t.Fatalf("has %q: %t", label, !has)
			}
		}
		short := func(label string) bool { return len(label) < 3 }
		same("filter", slices.DeleteFunc(set(a...), func(l string) bool { return !short(l) }), identity.NewLabels(a...).Filter(short))
	})
}

// Completing is idempotent, and never leaves two contradicting labels.
func TestPropertyComplete(t *testing.T) {
	aLabel := rapid.SampledFrom([]string{
		"reserved:host", "reserved:world", "reserved:unmanaged", "reserved:health", "reserved:init", "reserved:remote-node",
		"reserved:kube-apiserver", "reserved:ingress", "cidr:10.0.0.0/8", "cidr:203.0.113.0/24", "cidr:x", "k8s:app=web",
	})
	rapid.Check(t, func(t *rapid.T) {
		stated := identity.NewLabels(rapid.SliceOf(aLabel).Draw(t, "stated")...)
		owned := rapid.Bool().Draw(t, "owned")
		labels := identity.Complete(prefix, stated, owned)
		if again := identity.Complete(prefix, labels, owned); again != labels {
			t.Fatalf("%s, completed again %s", labels, again)
		}
		cidrs := 0
		for label := range labels.All() {
			if strings.HasPrefix(label, "cidr:") {
				cidrs++
			}
		}
		world := labels.Has(identity.LabelWorld)
		switch {
		case labels.IsEmpty():
			t.Fatal("no labels")
		case cidrs > 1 || cidrs == 1 && !world:
			t.Fatalf("CIDRs: %s", labels)
		case world && (owned || labels.Has(identity.LabelHost) || labels.Has(identity.LabelRemoteNode) || labels.Has(identity.LabelUnmanaged)):
			t.Fatalf("world and cluster: %s", labels)
		case labels.Has(identity.LabelHost) && labels.Has(identity.LabelRemoteNode):
			t.Fatalf("host and remote node: %s", labels)
		case stated.Has(identity.LabelKubeAPIServer) != labels.Has(identity.LabelKubeAPIServer):
			t.Fatalf("%s lost or won the API server: %s", stated, labels)
		}
	})
}

// The allocator against its contract: while a set has users its number is its own and stays; a set
// whose preferred number is free gets that; with the last user the number is free.
func TestPropertyAllocator(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var allocator identity.Allocator
		users, numbers := map[identity.Labels]int{}, map[identity.Labels]identity.Number{}
		a, b := collision()
		pool := []identity.Labels{a, b, identity.NewLabels("k8s:app=web"), identity.NewLabels(identity.LabelHost), identity.NewLabels(identity.LabelUnmanaged)}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if live := len(slices.DeleteFunc(slices.Collect(maps.Values(numbers)), func(n identity.Number) bool { return !n.IsLocal() })); allocator.Len() != live {
					t.Fatalf("%d local numbers, want %d", allocator.Len(), live)
				}
			},
			"acquire": func(t *rapid.T) {
				labels := rapid.SampledFrom(pool).Draw(t, "labels")
				number := allocator.Acquire(labels)
				had, alive := numbers[labels]
				if alive && number != had {
					t.Fatalf("%s was %s and became %s", labels, had, number)
				}
				for other, taken := range numbers {
					if other != labels && taken == number {
						t.Fatalf("%s and %s have %s", other, labels, number)
					}
				}
				preferred, reserved := identity.Reserved(labels)
				if !reserved {
					preferred = identity.PreferredNumber(labels)
				}
				if !alive && number != preferred && !slices.Contains(slices.Collect(maps.Values(numbers)), preferred) {
					t.Fatalf("%s is free, but %s got %s", preferred, labels, number)
				}
				if back, ok := allocator.Labels(number); ok == reserved || ok && back != labels {
					t.Fatalf("the labels of %s are %s, %t", number, back, ok)
				}
				users[labels]++
				numbers[labels] = number
			},
			"release": func(t *rapid.T) {
				labels := rapid.SampledFrom(pool).Draw(t, "labels")
				if users[labels] == 0 {
					t.Skip("no user")
				}
				allocator.Release(numbers[labels])
				if users[labels]--; users[labels] == 0 {
					delete(numbers, labels)
				}
			},
		})
	})
}

// collision returns two sets that prefer one number.
var collision = func() func() (identity.Labels, identity.Labels) {
	seen := map[identity.Number]identity.Labels{}
	for i := 0; ; i++ {
		labels := identity.NewLabels(fmt.Sprintf("k8s:app=%d", i))
		if other, taken := seen[identity.PreferredNumber(labels)]; taken {
			return func() (identity.Labels, identity.Labels) { return other, labels }
		}
		seen[identity.PreferredNumber(labels)] = labels
	}
}()

// The numbers are in the kernel of every running node: another hash would rewrite them all.
func TestPreferredNumberStays(t *testing.T) {
	labels := identity.NewLabels("cidr:203.0.113.9/32", "reserved:kube-apiserver", "reserved:world")
	if got := identity.PreferredNumber(labels); got != 23010817 {
		t.Errorf("%d", got)
	}
}
