package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// layer is what one package and the packages below it may import besides the standard library and
// themselves. A name stands for the package and everything below it.
type layer struct {
	dir     string
	warren  []string // packages of this module
	foreign []string // modules, or parts of them, of others
}

// pure are the packages without I/O, clock or goroutine, highest first: each may import those after it.
var pure = []string{"internal/datapath/model", "internal/plan", "internal/probe", "internal/ipcache", "internal/identity", "internal/cluster"}

// drivers touch the outside world, one part of it each, and never each other.
var drivers = []string{"internal/discovery", "internal/wireguard", "internal/netdev", "internal/datapath", "internal/metrics"}

// layers is the whole architecture. A package that is not here, or below one that is, fails the test.
// The most specific row counts: internal/datapath/model has its own.
var layers = []layer{
	{dir: "cmd/warren", warren: []string{"internal/cli"}},
	{dir: "internal/cli",
		warren:  slices.Concat([]string{"internal/agent", "internal/lab", "internal/api", "internal/config"}, drivers, pure),
		foreign: []string{"github.com/spf13/cobra"}},
	{dir: "internal/agent",
		warren:  slices.Concat([]string{"internal/api", "internal/config"}, drivers, pure),
		foreign: []string{"golang.org/x/sync", "golang.org/x/sys"}},
	{dir: "internal/lab",
		warren:  []string{"internal/api", "internal/config", "internal/cluster"},
		foreign: []string{"github.com/vishvananda/netns", "golang.org/x/sync", "golang.org/x/sys"}},

	{dir: "internal/discovery", warren: slices.Concat([]string{"internal/yamldoc"}, pure),
		foreign: []string{"github.com/fsnotify/fsnotify", "github.com/go-logr/logr", "golang.org/x/sys", "k8s.io", "sigs.k8s.io",
			"go.etcd.io", "go.uber.org/zap", "google.golang.org/grpc"}},
	{dir: "internal/wireguard", warren: pure,
		foreign: []string{"golang.zx2c4.com/wireguard", "golang.org/x/sys"}},
	{dir: "internal/netdev", warren: pure,
		foreign: []string{"github.com/vishvananda/netlink", "golang.org/x/sys"}},
	{dir: "internal/datapath", warren: pure,
		foreign: []string{"github.com/cilium/ebpf", "golang.org/x/sys"}},
	{dir: "internal/metrics", warren: pure,
		foreign: []string{"github.com/prometheus"}},

	{dir: "internal/config", warren: []string{"internal/yamldoc", "internal/cluster"}},
	{dir: "internal/yamldoc", foreign: []string{"github.com/goccy/go-yaml"}},
	{dir: "internal/api", warren: []string{"internal/cluster"}},

	{dir: "internal/probe", warren: []string{"internal/cluster"}},
	{dir: "internal/datapath/model", warren: pure[1:]},
	{dir: "internal/plan", warren: pure[2:]},
	{dir: "internal/ipcache", warren: pure[4:]},
	{dir: "internal/identity", warren: pure[5:]},
	{dir: "internal/cluster"},

	{dir: "internal/arch"},
	{dir: "deploy", warren: []string{"internal/config"}},
	{dir: "docs", warren: []string{"internal"}},
	{dir: "scripts"},
	{dir: "test", warren: []string{"internal"}, foreign: []string{"github.com/vishvananda/netns", "golang.org/x/crypto", "golang.org/x/sync", "golang.org/x/sys"}},
}

// doors are libraries that exactly one package may import, in tests too: whoever needs what is
// behind one asks that package.
var doors = map[string]string{
	"github.com/cilium/ebpf":         "internal/datapath",
	"github.com/fsnotify/fsnotify":   "internal/discovery",
	"github.com/go-logr/logr":        "internal/discovery/kube",
	"github.com/goccy/go-yaml":       "internal/yamldoc",
	"github.com/prometheus":          "internal/metrics",
	"github.com/spf13/cobra":         "internal/cli",
	"github.com/vishvananda/netlink": "internal/netdev",
	"go.etcd.io":                     "internal/discovery/etcd",
	"go.uber.org/zap":                "internal/discovery/etcd", // the logger of etcd's client
	"golang.zx2c4.com/wireguard":     "internal/wireguard",      // wgctrl is below it
	"google.golang.org/grpc":         "internal/discovery/etcd",
	"k8s.io":                         "internal/discovery/kube",
	"sigs.k8s.io":                    "internal/discovery/kube",
}

// testLibraries may be imported by the tests of any package, and by packages for tests.
var testLibraries = []string{
	"github.com/google/go-cmp",
	"github.com/rogpeppe/go-internal",
	"github.com/vishvananda/netns",
	"golang.org/x/sys",
	"pgregory.net/rapid",
}

// TestArrows holds every import of the module against the table above.
func TestArrows(t *testing.T) {
	for _, s := range loadModule(t) {
		for _, broken := range brokenArrows(s) {
			t.Error(broken)
		}
	}
}

// brokenArrows returns one line for each import of the file that the architecture forbids.
func brokenArrows(s source) []string {
	own, ok := layerOf(s.dir())
	if !ok {
		return []string{s.path + ": package is in no layer; give it a row in internal/arch/arrows_test.go"}
	}
	var broken []string
	for _, path := range s.imports() {
		if why := forbidden(own, s, path); why != "" {
			broken = append(broken, fmt.Sprintf("%s imports %s: %s", s.path, path, why))
		}
	}
	return broken
}

func forbidden(own layer, s source, path string) string {
	if dir, ok := strings.CutPrefix(path, module+"/"); ok {
		if support(dir) && !forTests(s) {
			return "it is for tests"
		}
		return forbiddenArrow(own, dir)
	}
	if standard(path) {
		return ""
	}
	for library, owner := range doors {
		if below(path, library) && !below(s.dir(), owner) {
			return "only " + owner + " may"
		}
	}
	if belowAny(path, own.foreign) || forTests(s) && belowAny(path, testLibraries) {
		return ""
	}
	return own.dir + " has no business with that library"
}

// forbiddenArrow judges an import inside the module by the layer it leads to: a permission for
// internal/datapath covers its subfolders, but not a subfolder that is a layer of its own.
func forbiddenArrow(own layer, dir string) string {
	target, ok := layerOf(dir)
	switch {
	case !ok:
		return "it is in no layer"
	case target.dir == own.dir, slices.Contains(own.warren, target.dir), slices.Contains(own.warren, "internal") && below(dir, "internal"):
		return ""
	case slices.Contains(drivers, own.dir) && slices.Contains(drivers, target.dir):
		return "drivers never import each other; the agent joins them"
	case slices.Contains(pure, own.dir):
		return own.dir + " is pure: the standard library and purer packages only"
	}
	return "the arrow from " + own.dir + " points the wrong way"
}

// support reports whether a package exists for tests alone, a fake or a contract: its name says so.
func support(dir string) bool {
	return strings.HasSuffix(dir, "test") || strings.HasSuffix(dir, "fake")
}

// forTests reports whether no part of the file is in the binary.
func forTests(s source) bool {
	return s.test() || support(s.dir()) || below(s.dir(), "test")
}

// layerOf returns the most specific row that covers a folder.
func layerOf(dir string) (best layer, ok bool) {
	for _, row := range layers {
		if below(dir, row.dir) && len(row.dir) > len(best.dir) {
			best, ok = row, true
		}
	}
	return best, ok
}

// standard reports whether an import path is the standard library's: its first element has no dot.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func below(path, root string) bool { return path == root || strings.HasPrefix(path, root+"/") }

func belowAny(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return below(path, root) })
}

// TestArrowsCanFail shows the rules at work on files that break them.
func TestArrowsCanFail(t *testing.T) {
	tests := []struct {
		name, path, imports string
		want                []string
	}{
		{name: "pure package with the standard library", path: "internal/plan/build.go", imports: "net/netip"},
		{name: "pure package with a purer one", path: "internal/plan/build.go", imports: "warren/internal/cluster"},
		{name: "pure package upwards", path: "internal/ipcache/cache.go", imports: "warren/internal/plan",
			want: []string{"internal/ipcache/cache.go imports warren/internal/plan: internal/ipcache is pure: the standard library and purer packages only"}},
		{name: "pure package with a library", path: "internal/plan/build.go", imports: "golang.org/x/sys/unix",
			want: []string{"internal/plan/build.go imports golang.org/x/sys/unix: internal/plan has no business with that library"}},
		{name: "the model is pure though it lives in a driver", path: "internal/datapath/model/decide.go", imports: "warren/internal/datapath",
			want: []string{"internal/datapath/model/decide.go imports warren/internal/datapath: internal/datapath/model is pure: the standard library and purer packages only"}},
		{name: "driver with its model", path: "internal/datapath/load.go", imports: "warren/internal/datapath/model"},
		{name: "driver with itself", path: "internal/discovery/dir/dir.go", imports: "warren/internal/discovery"},
		{name: "driver with a driver", path: "internal/wireguard/device.go", imports: "warren/internal/netdev",
			want: []string{"internal/wireguard/device.go imports warren/internal/netdev: drivers never import each other; the agent joins them"}},
		{name: "driver with a driver, in a test", path: "internal/datapath/load_test.go", imports: "warren/internal/netdev",
			want: []string{"internal/datapath/load_test.go imports warren/internal/netdev: drivers never import each other; the agent joins them"}},
		{name: "driver upwards", path: "internal/netdev/watch.go", imports: "warren/internal/agent",
			want: []string{"internal/netdev/watch.go imports warren/internal/agent: the arrow from internal/netdev points the wrong way"}},
		{name: "another's door", path: "internal/agent/agent.go", imports: "github.com/vishvananda/netlink",
			want: []string{"internal/agent/agent.go imports github.com/vishvananda/netlink: only internal/netdev may"}},
		{name: "another's door, in a test", path: "internal/agent/agent_test.go", imports: "github.com/cilium/ebpf/link",
			want: []string{"internal/agent/agent_test.go imports github.com/cilium/ebpf/link: only internal/datapath may"}},
		{name: "one's own door", path: "internal/datapath/load.go", imports: "github.com/cilium/ebpf/link"},
		{name: "a name that only starts alike", path: "internal/lab/lab.go", imports: "github.com/vishvananda/netns"},
		{name: "test library in a test", path: "internal/plan/diff_test.go", imports: "pgregory.net/rapid"},
		{name: "test library outside tests", path: "internal/plan/diff.go", imports: "pgregory.net/rapid",
			want: []string{"internal/plan/diff.go imports pgregory.net/rapid: internal/plan has no business with that library"}},
		{name: "test library in a package for tests", path: "internal/wireguard/wgtest/contract.go", imports: "pgregory.net/rapid"},
		{name: "package for tests in a test", path: "internal/agent/agent_test.go", imports: "warren/internal/wireguard/wgfake"},
		{name: "package for tests in the binary", path: "internal/agent/agent.go", imports: "warren/internal/wireguard/wgfake",
			want: []string{"internal/agent/agent.go imports warren/internal/wireguard/wgfake: it is for tests"}},
		{name: "main with more than the command line", path: "cmd/warren/main.go", imports: "warren/internal/agent",
			want: []string{"cmd/warren/main.go imports warren/internal/agent: the arrow from cmd/warren points the wrong way"}},
		{name: "package without a layer", path: "internal/helpers/strings.go", imports: "strings",
			want: []string{"internal/helpers/strings.go: package is in no layer; give it a row in internal/arch/arrows_test.go"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := parseSource(t, test.path, fmt.Sprintf("package p\n\nimport _ %q\n", test.imports))
			if diff := cmp.Diff(test.want, brokenArrows(s)); diff != "" {
				t.Errorf("broken arrows (-want +got):\n%s", diff)
			}
		})
	}
}
