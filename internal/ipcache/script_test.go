package ipcache_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/ipcache"
)

var update = flag.Bool("update", false, "write what the scripts answer into testdata")

// TestScripts plays the situations in testdata: a line after "> " is a command, the lines under it are
// the answer. -update rewrites the answers; review them like code.
//
//	> state SOURCE RESOURCE PREFIX [labels=A,B] [pair=ENDPOINT#KEY] [owner=CLUSTER/NAME] [flags=node,local] [issued=SECOND]
//	> forget SOURCE RESOURCE [PREFIX]
//	> drop SOURCE
//	> all | lookup ADDRESS | explain PREFIX | conflicts
func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			script := read(t, path)
			played := play(t, script)
			if *update {
				if err := os.WriteFile(path, []byte(played), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(script, played); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDocumentation: the worked examples of docs/ipcache.md are scripts that TestScripts plays.
func TestDocumentation(t *testing.T) {
	doc := read(t, "../../docs/ipcache.md")
	for _, name := range []string{"apiserver-then-node", "node-then-apiserver", "stale-record-of-own-address", "pod-under-its-node"} {
		if script := read(t, "testdata/"+name+".txt"); !strings.Contains(doc, "```\n"+script+"```") {
			t.Errorf("docs/ipcache.md does not show testdata/%s.txt as it is:\n%s", name, script)
		}
	}
	for source := cluster.SourceKubeAPIServer; source <= cluster.SourceRestored; source++ {
		if row := fmt.Sprintf("| %d | `%s` |", source, source); !strings.Contains(doc, row) {
			t.Errorf("docs/ipcache.md lacks the rank %q", row)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// play returns the script with fresh answers.
func play(t *testing.T, script string) string {
	t.Helper()
	cache, out := ipcache.New(), &strings.Builder{}
	for line := range strings.Lines(script) {
		switch {
		case strings.HasPrefix(line, "> "):
			out.WriteString(line)
			answer(t, out, cache, strings.Fields(line)[1:])
		case strings.HasPrefix(line, "#") || strings.TrimSpace(line) == "":
			out.WriteString(line)
		}
	}
	return out.String()
}

func answer(t *testing.T, out *strings.Builder, cache *ipcache.Cache, words []string) {
	t.Helper()
	command, args := words[0], words[1:]
	switch command {
	case "state":
		writeDeltas(out, cache.Upsert(parseFact(t, args)))
	case "forget":
		source := parseSource(t, args[0])
		if len(args) == 2 {
			writeDeltas(out, cache.DeleteResource(source, args[1]))
		} else {
			writeDeltas(out, cache.Delete(netip.MustParsePrefix(args[2]), source, args[1]))
		}
	case "drop":
		writeDeltas(out, cache.DropSource(parseSource(t, args[0])))
	case "all":
		for prefix, entry := range cache.All() {
			fmt.Fprintf(out, "%s %s\n", prefix, show(entry))
		}
	case "lookup":
		if prefix, entry, ok := cache.Lookup(netip.MustParseAddr(args[0])); ok {
			fmt.Fprintf(out, "%s %s\n", prefix, show(entry))
		} else {
			out.WriteString("nothing\n")
		}
	case "explain":
		writeExplanation(t, out, cache, netip.MustParsePrefix(args[0]))
	case "conflicts":
		writeConflicts(out, cache.Conflicts())
	default:
		t.Fatalf("command %q", command)
	}
}

func writeDeltas(out *strings.Builder, deltas []ipcache.Delta) {
	if len(deltas) == 0 {
		out.WriteString("no change\n")
	}
	for _, delta := range deltas {
		switch {
		case delta.Old == nil:
			fmt.Fprintf(out, "+ %s %s\n", delta.Prefix, show(*delta.New))
		case delta.New == nil:
			fmt.Fprintf(out, "- %s %s\n", delta.Prefix, show(*delta.Old))
		default:
			fmt.Fprintf(out, "~ %s %s\n     was %s\n", delta.Prefix, show(*delta.New), show(*delta.Old))
		}
	}
}

func writeExplanation(t *testing.T, out *strings.Builder, cache *ipcache.Cache, prefix netip.Prefix) {
	t.Helper()
	e, ok := cache.Explain(prefix)
	if !ok {
		out.WriteString("nothing\n")
		return
	}
	fmt.Fprintf(out, "%s %s\n", e.Prefix, show(e.Entry))
	fmt.Fprintf(out, "  owner from %s\n  pair from %s\n", showOrigin(e.Owner), showOrigin(e.Pair))
	for _, label := range e.Labels {
		fmt.Fprintf(out, "  %s from %s\n", label.Label, showOrigin(label.Fact))
	}
	for _, evidence := range e.Facts {
		verdict := "counts   "
		if evidence.Overruled {
			verdict = "overruled"
		}
		fmt.Fprintf(out, "  %s %s\n", verdict, showFact(evidence.Fact))
	}
}

func writeConflicts(out *strings.Builder, conflicts []ipcache.Conflict) {
	if len(conflicts) == 0 {
		out.WriteString("none\n")
	}
	for _, conflict := range conflicts {
		fmt.Fprintf(out, "%s %s\n  used  %s\n", conflict.Prefix, conflict.Field, showFact(conflict.Winner))
		for _, loser := range conflict.Losers {
			fmt.Fprintf(out, "  loses %s\n", showFact(loser))
		}
	}
}

func show(e ipcache.Entry) string {
	words := []string{fmt.Sprintf("%s [%s]", e.Identity, e.Labels)}
	return strings.Join(append(words, showInfo(cluster.Info{Owner: e.Owner, Pair: e.Pair, HasPair: e.HasPair, Flags: e.Flags})...), " ")
}

func showFact(f cluster.Fact) string {
	words := []string{f.Prefix.String(), f.Source.String(), f.Resource}
	if len(f.Info.Labels) > 0 {
		words = append(words, "labels="+strings.Join(f.Info.Labels, ","))
	}
	words = append(words, showInfo(f.Info)...)
	if f.Issued != 0 {
		words = append(words, fmt.Sprintf("issued=%d", f.Issued))
	}
	return strings.Join(words, " ")
}

func showInfo(info cluster.Info) []string {
	var words []string
	if info.HasPair {
		words = append(words, fmt.Sprintf("pair=%s#%d", info.Pair.Endpoint, info.Pair.Key))
	}
	if info.Owner != (cluster.NodeID{}) {
		words = append(words, "owner="+info.Owner.String())
	}
	if info.Flags != 0 {
		words = append(words, "flags="+strings.Join(flagNames(info.Flags), ","))
	}
	return words
}

func showOrigin(f *cluster.Fact) string {
	if f == nil {
		return "no fact"
	}
	return strings.Join([]string{f.Prefix.String(), f.Source.String(), f.Resource}, " ")
}

var namedFlags = []struct {
	name string
	flag cluster.Flags
}{{"node", cluster.FlagNode}, {"local", cluster.FlagLocal}}

func flagNames(flags cluster.Flags) []string {
	var names []string
	for _, named := range namedFlags {
		if flags&named.flag != 0 {
			names = append(names, named.name)
		}
	}
	return names
}

func parseSource(t *testing.T, text string) cluster.Source {
	t.Helper()
	source, err := cluster.ParseSource(text)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func parseFact(t *testing.T, words []string) cluster.Fact {
	t.Helper()
	f := cluster.Fact{Source: parseSource(t, words[0]), Resource: words[1], Prefix: netip.MustParsePrefix(words[2])}
	for _, word := range words[3:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "labels":
			f.Info.Labels = strings.Split(value, ",")
		case "pair":
			endpoint, key, _ := strings.Cut(value, "#")
			f.Info.Pair, f.Info.HasPair = cluster.Pair{Endpoint: netip.MustParseAddr(endpoint), Key: cluster.KeyID(number(t, key))}, true
		case "owner":
			f.Info.Owner.Cluster, f.Info.Owner.Name, _ = strings.Cut(value, "/")
		case "flags":
			for _, named := range namedFlags {
				if strings.Contains(value, named.name) {
					f.Info.Flags |= named.flag
				}
			}
		case "issued":
			f.Issued = number(t, value)
		default:
			t.Fatalf("%q: no such field", word)
		}
	}
	return f
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
