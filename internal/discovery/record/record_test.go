package record

import (
	"cmp"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record/recordtest"
)

func TestMarshal(t *testing.T) {
	recordtest.Golden(t, "testdata/n1.yaml", string(Marshal(recordtest.Sample("n1", 1))))
	all := recordtest.Sample("n2.example", 2)
	all.Addresses = append(all.Addresses, netip.MustParseAddr("fd00:0:0:2::"))
	all.Prefixes = append(all.Prefixes, netip.MustParsePrefix("fd00:42::/64"))
	all.Keys = []cluster.Key{{Public: recordtest.PublicKey(4), Epoch: 10, Port: 51881}, {Public: recordtest.PublicKey(3), Epoch: 9, Port: 51880}}
	all.Capabilities = []string{"rotate", "true"}
	recordtest.Golden(t, "testdata/n2.example.yaml", string(Marshal(all)))
}

// drawNode draws any node whose record is valid.
func drawNode(t *rapid.T) cluster.Node {
	unique := func(n int) []int {
		return rapid.SliceOfNDistinct(rapid.IntRange(1, 250), n, 4, rapid.ID[int]).Draw(t, "unique")
	}
	node := cluster.Node{
		ID:           cluster.NodeID{Cluster: rapid.StringMatching(`[a-z0-9]{1,8}`).Draw(t, "cluster"), Name: rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,8}[a-z0-9])?`).Draw(t, "name")},
		Issued:       time.Unix(rapid.Int64Range(-1e9, 1e11).Draw(t, "issued"), 0).UTC(),
		Capabilities: rapid.SliceOf(rapid.StringMatching(`[a-z0-9]{1,8}`)).Draw(t, "capabilities"),
		Version:      rapid.StringMatching(`[!-~]{0,20}`).Draw(t, "version"),
	}
	for _, n := range unique(1) {
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})
		if n%2 == 0 {
			addr = netip.AddrFrom16([16]byte{0xfd, byte(n), 14: byte(n >> 4)})
		}
		node.Addresses = append(node.Addresses, addr)
	}
	for _, n := range unique(0) {
		prefix := netip.PrefixFrom(netip.AddrFrom4([4]byte{11, byte(n)}), 16)
		if n%2 == 0 {
			prefix = netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x42, byte(n)}), 24+n%100).Masked()
		}
		node.Prefixes = append(node.Prefixes, prefix)
	}
	for i, n := range unique(1) {
		node.Keys = append(node.Keys, cluster.Key{Public: recordtest.PublicKey(byte(n)), Epoch: uint32(i*100 + n%100 + 1), Port: uint16(n)})
	}
	return node
}

// TestRoundTrip: a node is read as it was written, whatever its values look like to YAML.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawNode(t)
		got, err := Unmarshal("/nodes/"+want.ID.Name+".yaml", want.ID.Name, Marshal(want))
		if err != nil {
			t.Fatalf("%s\n%v", Marshal(want), err)
		}
		if diff := gocmp.Diff(want, got, recordtest.SameNode); diff != "" {
			t.Fatalf("%s\n(-want +got)\n%s", Marshal(want), diff)
		}
	})
}

// TestHalfWritten: what is left of a record that was cut off anywhere is not a record.
func TestHalfWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		node := drawNode(t)
		whole := Marshal(node)
		cut := rapid.IntRange(0, len(whole)-1).Draw(t, "cut")
		if got, err := Unmarshal("a record", node.ID.Name, whole[:cut]); err == nil {
			t.Fatalf("accepted:\n%s\nas %+v", whole[:cut], got)
		}
	})
}

func TestForgiving(t *testing.T) {
	want := recordtest.Sample("n1", 1)
	text := string(Marshal(want))
	for name, text := range map[string]string{
		"windows line ends":         strings.ReplaceAll(text, "\n", "\r\n"),
		"byte order mark":           "\ufeff" + text,
		"comments":                  "# by hand\n" + strings.ReplaceAll(text, "\n", " # why\n"),
		"document marker":           "---\n" + text,
		"other order":               "software: v0.1.0\n" + strings.Replace(text, "software: v0.1.0\n", "", 1),
		"another time zone":         strings.Replace(text, "2026-11-30T03:14:00Z", "2026-11-30T04:14:00.9+01:00", 1),
		"lists one to a line":       strings.Replace(text, "prefixes: [10.42.1.0/24]", "prefixes:\n- 10.42.1.0/24", 1),
		"keys in braces, in quotes": strings.Replace(text, "    epoch: 1\n    port: 51880", "    'epoch': 1\n    \"port\": 51880", 1),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Unmarshal("/nodes/n1.yaml", "n1", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(want, got, recordtest.SameNode); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestProblems holds what is said of every kind of bad record against testdata/problems. Each is made
// of a good one by replacing text; it is in the place of n1 unless the test says otherwise.
func TestProblems(t *testing.T) {
	good := string(Marshal(recordtest.Sample("n1", 1)))
	key := recordtest.PublicKey(1).String()
	tests := []struct {
		name, place string
		replace     []string
	}{
		{name: "unknown-version", replace: []string{"version: 1", "version: 2", "prefixes", "networks"}},
		{name: "version-is-text", replace: []string{"version: 1", "version: one"}},
		{name: "no-version", replace: []string{"version: 1\n", ""}},
		{name: "empty", replace: []string{good, ""}},
		{name: "cut-in-a-line", replace: []string{"v0.1.0\n", "v0.1"}},
		{name: "cut-between-lines", replace: []string{good[strings.Index(good, "issued"):], ""}},
		{name: "cut-in-a-list", replace: []string{good[strings.Index(good, ", fd00"):], "\n"}},
		{name: "unknown-key", replace: []string{"prefixes", "prefixs", "public", "publickey"}},
		{name: "repeated-key", replace: []string{"cluster: default", "cluster: default\nname: n2"}},
		{name: "wrong-types", replace: []string{"[10.0.0.1, fd00::1]", "10.0.0.1", "51880", "70000", key, `"key"`, "issued: 2026-11-30T03:14:00Z", "issued: now"}},
		{name: "another-place", place: "n2"},
		{name: "no-addresses-no-keys", replace: []string{"[10.0.0.1, fd00::1]", "[]", good[strings.Index(good, "keys:"):strings.Index(good, "issued")], "keys: []\n"}},
		{name: "bad-addresses", replace: []string{"[10.0.0.1, fd00::1]", `[127.0.0.1, "::", fe80::1, 10.0.0.1, 10.0.0.1, "::ffff:10.0.0.9"]`}},
		{name: "bad-prefixes", replace: []string{"[10.42.1.0/24]", `[10.42.1.1/24, "::/0", 10.0.0.1/32, 10.42.1.0/24, 10.42.1.0/24]`}},
		{name: "bad-names", replace: []string{"name: n1", "name: N1", "cluster: default", "cluster: -x"}},
		{name: "zero-key", replace: []string{key, cluster.PublicKey{}.String(), "epoch: 1", "epoch: 0", "51880", "0"}},
		{name: "one-key-twice", replace: []string{"issued", "  - {public: " + key + ", epoch: 2, port: 51881}\nissued"}},
		{name: "one-epoch-twice", replace: []string{"issued", "  - {public: " + recordtest.PublicKey(2).String() + ", epoch: 1, port: 51881}\nissued"}},
		{name: "terminal-escapes", replace: []string{"v0.1.0", `"\e[31mred"`, "capabilities: []", `capabilities: ["\e[0m", Ok, -]`}},
		{name: "year-too-large", replace: []string{"2026-11-30T03:14:00Z", "9999-12-31T23:59:59-01:00"}},
		{name: "not-text", replace: []string{"v0.1.0", "v0\x00"}},
		{name: "anchor", replace: []string{"[10.42.1.0/24]", "&a [10.42.1.0/24]"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			place := cmp.Or(tc.place, "n1")
			_, err := Unmarshal("/nodes/"+place+".yaml", place, []byte(strings.NewReplacer(tc.replace...).Replace(good)))
			if err == nil {
				t.Fatal("accepted")
			}
			var text strings.Builder
			for _, p := range problemsOf(err) {
				if p.Where == "" || p.Message == "" || p.Remedy == "" {
					t.Errorf("incomplete: %+v", p)
				}
				text.WriteString(p.String() + "\n")
			}
			recordtest.Golden(t, filepath.Join("testdata/problems", tc.name+".golden"), text.String())
		})
	}
}

// FuzzUnmarshal: no file makes the reader panic; what it accepts is written and read as the same node.
func FuzzUnmarshal(f *testing.F) {
	f.Add(Marshal(recordtest.Sample("n1", 1)))
	f.Add([]byte("version: 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		node, err := Unmarshal("n1.yaml", "n1", data)
		if err != nil {
			_ = append([]discovery.Problem{}, problemsOf(err)...)
			return
		}
		again, err := Unmarshal("n1.yaml", "n1", Marshal(node))
		if err != nil {
			t.Fatalf("%s\n%v", Marshal(node), err)
		}
		if diff := gocmp.Diff(node, again, recordtest.SameNode); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}
