package docs_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"warren/internal/cluster"
	"warren/internal/config"
	"warren/internal/datapath/model"
	"warren/internal/ipcache"
)

// renderers make the parts of the pages that the code says first, by the name in the page.
var renderers = map[string]func() string{
	"config":    configuration,
	"metrics":   metricsTable,
	"reasons":   reasons,
	"sources":   sources,
	"apiserver": apiServerExample,
}

func configuration() string { return "```yaml\n" + config.Example() + "```\n" }

func reasons() string {
	var rows [][]string
	for _, reason := range model.Reasons() {
		var programs []string
		for _, program := range reason.Programs() {
			programs = append(programs, program.String())
		}
		rows = append(rows, []string{"`" + reason.String() + "`", code(programs), reason.Description()})
	}
	return table([]string{"reason", "given by", "the packet was, and what becomes of it"}, rows)
}

// sourceMeanings say where the facts of a source come from.
var sourceMeanings = map[cluster.Source]string{
	cluster.SourceKubeAPIServer:  "the endpoints of the API server",
	cluster.SourceLocal:          "this node, about itself",
	cluster.SourceKVStore:        "etcd",
	cluster.SourceCustomResource: "`WarrenNode` objects",
	cluster.SourceKubernetes:     "other Kubernetes objects",
	cluster.SourceDirectory:      "records in the watched folder",
	cluster.SourceFile:           "facts in the configuration file",
	cluster.SourceGenerated:      "derived by the agent",
	cluster.SourceRestored:       "the snapshot of an earlier run; dropped when every other source is synced",
}

func sources() string {
	var rows [][]string
	for source := cluster.Source(1); int(source) <= len(sourceMeanings); source++ {
		rows = append(rows, []string{strconv.Itoa(int(source)), "`" + source.String() + "`", sourceMeanings[source]})
	}
	return table([]string{"rank", "source", "facts"}, rows)
}

// apiServerExample is a node that runs the API server, as the IPCache sees it in both orders.
func apiServerExample() string {
	prefix := netip.MustParsePrefix("192.0.2.2/32")
	apiServer := cluster.Fact{
		Prefix: prefix, Source: cluster.SourceKubeAPIServer, Resource: "endpoints/default/kubernetes",
		Info: cluster.Info{Labels: []string{"reserved:kube-apiserver"}},
	}
	node := cluster.Fact{
		Prefix: prefix, Source: cluster.SourceDirectory, Resource: "node/default/n2",
		Info: cluster.Info{
			Labels: []string{"reserved:remote-node"}, Flags: cluster.FlagNode,
			Pair: cluster.Pair{Endpoint: prefix.Addr(), Key: 1}, HasPair: true,
			Owner: cluster.NodeID{Cluster: "default", Name: "n2"},
		},
	}
	orders := []struct {
		name  string
		facts []cluster.Fact
	}{
		{"A", []cluster.Fact{apiServer}},
		{"B", []cluster.Fact{node}},
		{"A, then B", []cluster.Fact{apiServer, node}},
		{"B, then A", []cluster.Fact{node, apiServer}},
	}
	var rows [][]string
	for _, order := range orders {
		cache := ipcache.New()
		for _, fact := range order.facts {
			cache.Upsert(fact)
		}
		entry, _ := cache.Get(prefix)
		rows = append(rows, []string{order.name, code(slices.Collect(entry.Labels.All())), fmt.Sprint(uint32(entry.Identity)), pair(entry)})
	}
	return table([]string{"live", "labels", "identity", "pair"}, rows)
}

func pair(entry ipcache.Entry) string {
	if !entry.HasPair {
		return "absent"
	}
	return fmt.Sprintf("(%s, key %d)", entry.Pair.Endpoint, entry.Pair.Key)
}

func code(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }
