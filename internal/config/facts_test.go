package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
)

func TestFactText(t *testing.T) {
	endpoint := netip.MustParseAddr("10.0.0.2")
	for _, test := range []struct {
		name, text string
		want       Fact
		problem    string
	}{
		{name: "labels", text: "192.0.2.0/24 label=reserved:world label=site:b",
			want: Fact{netip.MustParsePrefix("192.0.2.0/24"), cluster.Info{Labels: []string{"reserved:world", "site:b"}}}},
		{name: "one address", text: "192.0.2.7", want: Fact{Prefix: netip.MustParsePrefix("192.0.2.7/32")}},
		{name: "through a node", text: "10.9.0.0/16 owner=default/n2 endpoint=10.0.0.2",
			want: Fact{netip.MustParsePrefix("10.9.0.0/16"), cluster.Info{Owner: cluster.NodeID{Cluster: "default", Name: "n2"}, HasPair: true, Pair: cluster.Pair{Endpoint: endpoint, Key: 1}}}},
		{name: "with another key", text: "10.9.0.0/16 key=3 endpoint=10.0.0.2",
			want: Fact{netip.MustParsePrefix("10.9.0.0/16"), cluster.Info{HasPair: true, Pair: cluster.Pair{Endpoint: endpoint, Key: 3}}}},
		{name: "never encrypted", text: "fd00:9::/64 encrypt=no",
			want: Fact{netip.MustParsePrefix("fd00:9::/64"), cluster.Info{HasPair: true}}},
		{name: "empty", text: " ", problem: "begin with a prefix"},
		{name: "no prefix", text: "label=a:b", problem: "not a prefix"},
		{name: "unmasked", text: "10.9.0.1/16", problem: "write 10.9.0.0/16"},
		{name: "everything", text: "::/0", problem: "every address"},
		{name: "unknown word", text: "10.9.0.0/16 via=n2", problem: `"via" is not known`},
		{name: "word twice", text: "10.9.0.0/16 owner=n2 owner=n3", problem: "owner is there twice"},
		{name: "label without source", text: "10.9.0.0/16 label=world", problem: "a source and a name"},
		{name: "key 0", text: "10.9.0.0/16 endpoint=10.0.0.2 key=0", problem: "encrypt=no instead"},
		{name: "key alone", text: "10.9.0.0/16 key=1", problem: "key without endpoint"},
		{name: "both", text: "10.9.0.0/16 endpoint=10.0.0.2 encrypt=no", problem: "exclude each other"},
		{name: "bad endpoint", text: "10.9.0.0/16 endpoint=n2", problem: "n2"},
		{name: "bad owner", text: "10.9.0.0/16 owner=N2", problem: "N2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got Fact
			err := got.UnmarshalText([]byte(test.text))
			if test.problem != "" {
				if err == nil || !strings.Contains(err.Error(), test.problem) {
					t.Errorf("error %v, want %q in it", err, test.problem)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			byValue := cmp.Options{cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })}
			if diff := cmp.Diff(test.want, got, byValue); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var again Fact
			if err := again.UnmarshalText([]byte(got.String())); err != nil || !cmp.Equal(got, again, byValue) {
				t.Errorf("%q is read back as %+v, %v", got, again, err)
			}
		})
	}
}

func TestFactsInAFile(t *testing.T) {
	c, err := Parse("warren.yaml", []byte("facts:\n  - 192.0.2.0/24 label=reserved:world\n  - 192.0.2.0/24 encrypt=no\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := "warren.yaml:3:5: facts[1]: 192.0.2.0/24 is already in facts[0]; say everything about a prefix in one line"
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
