package config

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"warren/internal/cluster"
	"warren/internal/yamldoc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sameConfig compares what can be configured.
var sameConfig = cmp.Options{
	cmpopts.IgnoreUnexported(Config{}),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", file, diff)
	}
}

// TestRulesMatchConfig: every key of Config has its row, in the same place.
func TestRulesMatchConfig(t *testing.T) {
	c := Default()
	var want, got []string
	for _, leaf := range yamldoc.Leaves(&c) {
		want = append(want, leaf.Key)
	}
	for _, r := range rules {
		got = append(got, r.key)
		if !strings.HasSuffix(r.help, ".") {
			t.Errorf("%s: help is no sentence: %q", r.key, r.help)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
}

func TestExample(t *testing.T) {
	golden(t, "testdata/example.yaml", Example())
	got, err := Parse("example.yaml", []byte(Example()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got, sameConfig); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for i, line := range strings.Split(Example(), "\n") {
		if len(line) > 98 {
			t.Errorf("line %d has %d characters", i+1, len(line))
		}
	}
}

func TestParse(t *testing.T) {
	with := func(change func(*Config)) Config {
		c := Default()
		change(&c)
		return c
	}
	tests := []struct {
		name, text string
		want       Config
	}{
		{"empty file", "", Default()},
		{"one key", "mode: strict\n", with(func(c *Config) { c.Mode = cluster.ModeStrict })},
		{"half a section", "dir:\n  rescan: 1m30s\n", with(func(c *Config) { c.Dir.Rescan.Duration = 90 * time.Second })},
		{"mark with its mask", "mark: 0x100/0xff00\n", with(func(c *Config) { c.Mark = Mark{0x100, 0xff00} })},
		{"mark alone, as a number", "mark: 0x20\n", with(func(c *Config) { c.Mark = Mark{0x20, 0x20} })},
		{"mark in decimal", "mark: \"32\"\n", with(func(c *Config) { c.Mark = Mark{0x20, 0x20} })},
		{"node that looks like a number", "node: 007\n", with(func(c *Config) { c.Node = "007" })},
		{"no metrics", "metrics-address: \"\"\n", with(func(c *Config) { c.MetricsAddress = "" })},
		{"all interfaces", "metrics-address: \":9880\"\n", with(func(c *Config) { c.MetricsAddress = ":9880" })},
		{"addresses", "addresses: [10.0.0.1, fd00::1]\nprefixes:\n  - 10.42.0.0/24\n", with(func(c *Config) {
			c.Addresses = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
			c.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24")}
		})},
		{"underlay patterns", "underlay: [\"eth*\", bond0]\n", with(func(c *Config) { c.Underlay = []string{"eth*", "bond0"} })},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Parse("warren.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Validate(); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(tc.want, got, sameConfig); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestProblems holds the text of every problem against testdata/problems.
func TestProblems(t *testing.T) {
	files, err := filepath.Glob("testdata/problems/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Parse(filepath.Base(file), data)
			if err == nil {
				err = c.Validate()
			}
			if err == nil {
				t.Fatal("accepted")
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

func TestSet(t *testing.T) {
	tests := []struct{ name, key, value, want string }{
		{"word", "mode", "strict", ""},
		{"number", "port", "51881", ""},
		{"nested", "dir.path", "/srv/nodes", ""},
		{"list", "addresses", "10.0.0.1, fd00::1", ""},
		{"nothing", "metrics-address", "", ""},
		{"wrong word", "mode", "strickt", `--mode: "strickt" is not a mode; write observe or permissive or strict`},
		{"wrong number", "port", "x", `--port: "x" is not a whole number; write one from 0 to 65535`},
		{"out of range", "resync", "1m", "--resync: 1m0s is out of range; write 1s to 30s"},
		{"wrong element", "addresses", "10.0.0.1,127.0.0.1", "--addresses: addresses[1]: 127.0.0.1 cannot be reached from other machines; leave it out"},
		{"nested wrong", "dir.rescan", "1ms", "--dir-rescan: 1ms is out of range; write 1s to 5m0s"},
		{"no such key", "mod", "strict", "--mod: unknown key; did you mean mode?"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c, err := Parse("warren.yaml", []byte("log-level: debug\n"))
			if err != nil {
				t.Fatal(err)
			}
			before, got := c, ""
			if err := c.Set(tc.key, tc.value); err != nil {
				got = err.Error()
				if diff := cmp.Diff(before, c, sameConfig); diff != "" {
					t.Errorf("a refused flag changed the configuration (-before +after)\n%s", diff)
				}
			}
			if got != tc.want {
				t.Errorf("want %q, got %q", tc.want, got)
			}
			if c.LogLevel != LogDebug {
				t.Error("the file's value is gone")
			}
		})
	}
}

// TestSetWinsOverFile: a flag replaces a value of the file that could not work, and problems that it
// causes elsewhere name it.
func TestSetWinsOverFile(t *testing.T) {
	c, err := Parse("warren.yaml", []byte("engine: kernal\nunderlay: [\"wg*\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Set("engine", "kernel"); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if err := c.Set("device", "wg7"); err != nil {
		t.Fatal(err)
	}
	want := `warren.yaml:2:12: underlay[0]: "wg*" matches wg7, the WireGuard device itself; narrow it`
	if err := c.Validate(); err == nil || err.Error() != want {
		t.Errorf("want %s\ngot  %v", want, err)
	}
}

func TestSetLeavesCopiesAlone(t *testing.T) {
	a := Default()
	if err := a.Set("port", "1"); err != nil {
		t.Fatal(err)
	}
	b := a
	if err := b.Set("mode", "strict"); err != nil {
		t.Fatal(err)
	}
	if len(a.flags) != 1 || a.Mode != cluster.ModePermissive {
		t.Errorf("a knows of b's flag: %v", a.flags)
	}
}

// TestKeys: every default can be given as a flag and changes nothing.
func TestKeys(t *testing.T) {
	c := Default()
	flags := map[string]bool{}
	for _, key := range Keys() {
		if err := c.Set(key.Name, key.Default); err != nil {
			t.Error(err)
		}
		if flags[key.Flag()] {
			t.Errorf("two keys have the flag %s", key.Flag())
		}
		flags[key.Flag()] = true
		if key.Values != nil && !slices.Contains(key.Values, key.Default) {
			t.Errorf("%s: default %s is not among %v", key.Name, key.Default, key.Values)
		}
	}
	if diff := cmp.Diff(Default(), c, sameConfig); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "warren.yaml")
	if err := os.WriteFile(file, []byte("mode: strict\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(file); err != nil || c.Mode != cluster.ModeStrict {
		t.Errorf("%v %v", c.Mode, err)
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("want fs.ErrNotExist, got %v", err)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a folder is no configuration")
	}
	if err := os.WriteFile(file, make([]byte, yamldoc.MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "more than 1048576 bytes") {
		t.Errorf("too large: %v", err)
	}
}

func TestNodeID(t *testing.T) {
	c := Default()
	c.Node = "n1"
	if id, err := c.NodeID(); err != nil || id != (cluster.NodeID{Cluster: "default", Name: "n1"}) {
		t.Errorf("%v %v", id, err)
	}
	c.Node = "N1"
	if _, err := c.NodeID(); err == nil {
		t.Error("N1 is no name")
	}
	for host, want := range map[string]string{"Host": "host", "a.example.org": "a", "n-1": "n-1"} {
		if got := shortName(host); got != want {
			t.Errorf("%s: want %s, got %s", host, want, got)
		}
	}
}

func TestJSON(t *testing.T) {
	text, err := json.MarshalIndent(Default(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/default.json", string(text)+"\n")
	var back Config
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), back, sameConfig); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestLogLevel(t *testing.T) {
	for level, want := range map[LogLevel]slog.Level{LogDebug: slog.LevelDebug, LogInfo: slog.LevelInfo, LogWarn: slog.LevelWarn, LogError: slog.LevelError, "": slog.LevelInfo} {
		if got := level.Level(); got != want {
			t.Errorf("%s: want %v, got %v", level, want, got)
		}
	}
}

func drawConfig(t *rapid.T) Config {
	c := Default()
	word := rapid.StringMatching(`[ -~]{0,12}`)
	addr := rapid.Custom(func(t *rapid.T) netip.Addr {
		if rapid.Bool().Draw(t, "v6") {
			return netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "addr")))
		}
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "addr")))
	})
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := addr.Draw(t, "addr").WithZone("")
		return netip.PrefixFrom(a, rapid.IntRange(0, a.BitLen()).Draw(t, "bits")).Masked()
	})
	c.Cluster, c.Node, c.Device, c.MetricsAddress = word.Draw(t, "cluster"), word.Draw(t, "node"), word.Draw(t, "device"), word.Draw(t, "metrics")
	c.Dir.Path, c.StateDir, c.RunDir, c.BPFDir = word.Draw(t, "path"), word.Draw(t, "state"), word.Draw(t, "run"), word.Draw(t, "bpf")
	c.Mode, c.Engine = rapid.SampledFrom([]cluster.Mode{cluster.ModeObserve, cluster.ModePermissive, cluster.ModeStrict}).Draw(t, "mode"), Engine(word.Draw(t, "engine"))
	c.Addresses, c.Prefixes = rapid.SliceOfN(addr, 0, 4).Draw(t, "addresses"), rapid.SliceOfN(prefix, 0, 4).Draw(t, "prefixes")
	c.Underlay = rapid.SliceOfN(word, 0, 3).Draw(t, "underlay")
	c.Port, c.MTU = rapid.Uint16().Draw(t, "port"), rapid.Int().Draw(t, "mtu")
	c.Mark = Mark{rapid.Uint32().Draw(t, "value"), rapid.Uint32().Draw(t, "mask")}
	c.Resync.Duration = time.Duration(rapid.Int64().Draw(t, "resync"))
	c.IPCache = IPCache{rapid.Uint32().Draw(t, "addresses"), rapid.Uint32().Draw(t, "prefixes")}
	return c
}

// TestDocumentParses: any configuration, sensible or not, is written so that it is read as itself.
func TestDocumentParses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawConfig(t)
		got, err := Parse("x.yaml", []byte(want.Document()))
		if err != nil {
			t.Fatalf("%s\n%v", want.Document(), err)
		}
		if diff := cmp.Diff(want, got, sameConfig); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}

// TestProblemsHaveRemedies: whatever is wrong, the key and what to do are named.
func TestProblemsHaveRemedies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, p := range drawConfig(t).problems() {
			if p.Key == "" || p.Message == "" || p.Remedy == "" {
				t.Errorf("%+v", p)
			}
		}
	})
}

// FuzzParse: no file makes the reader panic, and what is accepted is written back as itself.
func FuzzParse(f *testing.F) {
	f.Add([]byte(Example()))
	f.Add([]byte("mode: strict\nmark: 0x10\nprefixes: [10.0.0.0/8]\ndir: {path: /x}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("x.yaml", data)
		if err != nil {
			return
		}
		_ = c.Validate()
		again, err := Parse("again.yaml", []byte(c.Document()))
		if err != nil {
			t.Fatalf("%s\n%v", c.Document(), err)
		}
		if diff := cmp.Diff(c, again, sameConfig); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	})
}

func TestReload(t *testing.T) {
	with := func(change func(*Config)) Config {
		c := Default()
		change(&c)
		return c
	}
	tests := []struct {
		name        string
		next, want  Config
		wantedFixed []string
	}{
		{"nothing changed", Default(), Default(), nil},
		{"what can change while the agent runs", with(func(c *Config) { c.Mode, c.MTU = cluster.ModeStrict, 1300 }),
			with(func(c *Config) { c.Mode, c.MTU = cluster.ModeStrict, 1300 }), nil},
		{"what cannot, with what can", with(func(c *Config) { c.Mode, c.Port, c.Device, c.Mark = cluster.ModeStrict, 1, "wg7", Mark{1, 1} }),
			with(func(c *Config) { c.Mode = cluster.ModeStrict }), []string{"device", "port", "mark"}},
		{"a duration that cannot", with(func(c *Config) { c.Resync.Duration = time.Second }), Default(), []string{"resync"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, fixed := Default().Reload(test.next)
			if diff := cmp.Diff(test.want, got, sameConfig); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(test.wantedFixed, fixed); diff != "" {
				t.Errorf("fixed (-want +got)\n%s", diff)
			}
		})
	}
}
