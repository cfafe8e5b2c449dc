package yamldoc

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// settings has every shape that documents of Warren have.
type settings struct {
	Name     string         `yaml:"name"`
	Port     uint16         `yaml:"port"`
	Count    int            `yaml:"count"`
	Color    color          `yaml:"color"`
	Address  netip.Addr     `yaml:"address"`
	Prefixes []netip.Prefix `yaml:"prefixes"`
	Issued   time.Time      `yaml:"issued"`
	Dir      struct {
		Path   string `yaml:"path"`
		Rescan int    `yaml:"rescan-every"`
	} `yaml:"dir"`
	Keys    []key `yaml:"keys"`
	private int   // without a key
}

type key struct {
	Public string `yaml:"public"`
	Epoch  uint32 `yaml:"epoch"`
}

// color explains itself in its errors, as Warren's own types do.
type color string

func (c *color) UnmarshalText(text []byte) error {
	if string(text) != "red" && string(text) != "blue" {
		return errors.New("no such color; write red or blue")
	}
	*c = color(text)
	return nil
}

func TestDecode(t *testing.T) {
	complete := settings{
		Name: "n1", Port: 51880, Count: -3, Color: "red", Address: netip.MustParseAddr("fd00::1"),
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.42.1.0/24"), netip.MustParsePrefix("fd00:42::/64")},
		Issued:   time.Date(2026, 11, 30, 3, 14, 0, 0, time.UTC),
		Keys:     []key{{"a=", 1}, {"b=", 2}},
	}
	complete.Dir.Path, complete.Dir.Rescan = "/etc/x", 10
	text := `name: n1
port: 51880
count: -3
color: red
address: fd00::1
prefixes: [10.42.1.0/24, "fd00:42::/64"] # a comment
issued: 2026-11-30T03:14:00Z
dir:
  path: /etc/x
  rescan-every: 10
keys:
  - public: a=
    epoch: 1
  - {public: b=, epoch: 2}
`
	preset := settings{Name: "preset", Keys: []key{{"p", 9}}, private: 1}
	tests := []struct {
		name, text string
		into, want settings
	}{
		{"every kind of value", text, settings{}, complete},
		{"windows line ends and byte order mark", "\ufeff" + strings.ReplaceAll(text, "\n", "\r\n"), settings{}, complete},
		{"document markers", "---\n" + text + "...\n", settings{}, complete},
		{"nothing leaves everything alone", "", preset, preset},
		{"only comments", "# nothing\n", preset, preset},
		{"a list replaces a list", "keys: []\n", preset, settings{Name: "preset", Keys: []key{}, private: 1}},
		{"text that looks like other types", "name: 007\n", settings{}, settings{Name: "007"}},
		{"text of more lines", "name: |\n  a\n  b\n", settings{}, settings{Name: "a\nb\n"}},
		{"one key only, nested", "dir: {path: x}\n", settings{}, func() (s settings) { s.Dir.Path = "x"; return }()},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			doc, err := Parse("x.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			got := tc.into
			if problems := doc.Decode(&got); problems != nil {
				t.Fatal(problems)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(settings{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestProblems holds the text of every problem, and its line, against testdata/problems.
func TestProblems(t *testing.T) {
	files, err := filepath.Glob("testdata/problems/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no documents", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".golden", problemsOf(data, filepath.Base(file)))
		})
	}
}

// problemsOf is what a document is told; names starting with "all-" must have every key.
func problemsOf(data []byte, name string) string {
	doc, err := Parse(name, data)
	if err != nil {
		return err.Error() + "\n"
	}
	var into settings
	decode := doc.Decode
	if strings.HasPrefix(name, "all-") {
		decode = doc.DecodeAll
	}
	return decode(&into).Error() + "\n"
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

func TestFailedValueLeavesField(t *testing.T) {
	doc, err := Parse("x.yaml", []byte("name: new\nport: x\naddress: x\ncolor: green\nprefixes: [10.0.0.0/8, x]\n"))
	if err != nil {
		t.Fatal(err)
	}
	before := settings{Name: "old", Port: 1, Address: netip.MustParseAddr("10.0.0.1"), Color: "red", Prefixes: []netip.Prefix{netip.MustParsePrefix("fd00::/8")}}
	got := before
	if problems := doc.Decode(&got); len(problems) != 4 {
		t.Errorf("want 4 problems, got:\n%v", problems)
	}
	before.Name = "new"
	if !cmp.Equal(before.Prefixes, got.Prefixes, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })) || got.Port != 1 || got.Address != before.Address || got.Color != "red" || got.Name != "new" {
		t.Errorf("got %+v", got)
	}
}

func TestWhere(t *testing.T) {
	doc, err := Parse("x.yaml", []byte("\nname: n1\ndir:\n  path: /x\nkeys:\n  - public: a\n    epoch: 1\nprefixes: [10.0.0.0/8,\n  fd00::/8]\n"))
	if err != nil {
		t.Fatal(err)
	}
	doc.Decode(new(settings))
	for key, want := range map[string]string{
		"name":          "x.yaml:2:7",
		"dir":           "x.yaml:4:3",
		"dir.path":      "x.yaml:4:9",
		"dir.rescan":    "x.yaml:4:3", // absent: where its mapping is
		"keys[0]":       "x.yaml:6:5",
		"keys[0].epoch": "x.yaml:7:12",
		"keys[0].port":  "x.yaml:6:5",
		"prefixes":      "x.yaml:8:11",
		"prefixes[1]":   "x.yaml:9:3",
		"port":          "x.yaml:1:1",
	} {
		if got := doc.Where(key); got != want {
			t.Errorf("%s: want %s, got %s", key, want, got)
		}
	}
}

func TestExplainAll(t *testing.T) {
	err := errors.Join(
		errors.New("keys[0].epoch: 0; epochs count from 1"),
		errors.New(`name: "N1": only a-z, 0-9`),
		errors.Join(errors.New("addresses: none; a node needs one; at least")),
	)
	want := Problems{
		{Key: "keys[0].epoch", Message: "0", Remedy: "epochs count from 1"},
		{Key: "name", Message: `"N1": only a-z, 0-9`},
		{Key: "addresses", Message: "none", Remedy: "a node needs one; at least"},
	}
	if diff := cmp.Diff(want, ExplainAll(err)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := ExplainAll(nil); got != nil {
		t.Errorf("no error: %v", got)
	}
}

func TestScalarAndHas(t *testing.T) {
	doc, err := Parse("x.yaml", []byte("unknown: [1]\n\nname: n1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if text, ok := doc.Scalar("name"); text != "n1" || !ok || !doc.Has("name") || doc.Where("name") != "x.yaml:3:7" {
		t.Errorf("name: %q %v at %s", text, ok, doc.Where("name"))
	}
	for _, key := range []string{"unknown", "port"} {
		if text, ok := doc.Scalar(key); text != "" || ok {
			t.Errorf("%s: %q %v", key, text, ok)
		}
	}
	if doc.Has("port") {
		t.Error("there is no port")
	}
}

// TestHostile holds the bounds that keep one document from stopping the machine that reads it.
func TestHostile(t *testing.T) {
	repeat := func(text string) string { return strings.Repeat(text, MaxSize/len(text)) }
	many := func(text string) string { return strings.Repeat(text, (maxWords-1)/words([]byte(text))) } // as many as there may be
	for name, text := range map[string]string{
		"too many words":  repeat("["),
		"brackets":        many("["),
		"braces":          many("{a: "),
		"dashes":          many("- "),
		"keys in a line":  many("a: "),
		"keys":            many("a: 1\n"),
		"indentation":     indented(500),
		"complex keys":    many("? "),
		"anchors":         many("&a "),
		"tags":            many("!a "),
		"aliases":         "a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
		"too large":       repeat("# comment\n") + "# and more\n",
		"long list":       "prefixes: [" + strings.Repeat("1,", maxWords/2) + "]",
		"unknown keys":    manyKeys(maxKeys - 1),
		"one long key":    strings.Repeat("k", MaxSize-10) + ": 1",
		"control bytes":   "name: \x1b[31m\n",
		"invalid unicode": "name: \xff\n",
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			problems := problemsOf([]byte(text), "x.yaml")
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %v", took)
			}
			if len(problems) < 10 || len(problems) > 10_000 {
				t.Errorf("%d bytes of problems: %.200s", len(problems), problems)
			}
		})
	}
}

func TestParserPanicIsAnError(t *testing.T) {
	err := guard(func() error { panic("index out of range") })
	if err == nil || err.Error() != "the parser gave up (index out of range)" {
		t.Error(err)
	}
}

func indented(levels int) string {
	var text strings.Builder
	for i := range levels {
		text.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return text.String()
}

func manyKeys(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString("k" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + ": 1\n")
	}
	return text.String()
}

func TestSetText(t *testing.T) {
	tests := []struct{ name, key, text, wantErr string }{
		{"text", "name", "n1", ""},
		{"number", "port", "1", ""},
		{"nested", "dir.path", "/x", ""},
		{"list", "prefixes", "10.0.0.0/8, fd00::/8", ""},
		{"empty list", "prefixes", "", ""},
		{"own type", "color", "blue", ""},
		{"wrong number", "port", "70000", `port: 70000 is out of range; write one from 0 to 65535`},
		{"wrong element", "prefixes", "10.0.0.0/8,x", `prefixes[1]: "x" is not a prefix; write one such as 10.42.1.0/24 or fd00:42::/64`},
		{"empty address", "address", "", `address: "" is not an IP address; write one such as 10.0.0.1 or fd00::1`},
		{"wrong own type", "color", "green", "color: no such color; write red or blue"},
		{"unknown", "dir.pth", "x", "dir.pth: unknown key; did you mean dir.path?"},
		{"a mapping", "dir", "x", "dir: unknown key; did you mean dir.path?"},
		{"below a value", "name.x", "x", "name.x: unknown key; did you mean name?"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var into settings
			got := ""
			if err := SetText(&into, tc.key, tc.text); err != nil {
				got = err.Error()
			}
			if got != tc.wantErr {
				t.Errorf("want %q, got %q", tc.wantErr, got)
			}
		})
	}
}

func TestSuggest(t *testing.T) {
	known := []string{"mode", "port", "mtu", "addresses", "log-level", "log-format", "metrics-address", "state-dir"}
	for unknown, want := range map[string]string{
		"mod": "mode", "prot": "port", "adress": "addresses", "address": "addresses", "log_level": "log-level",
		"logFormat": "log-format", "metrics": "metrics-address", "statedir": "state-dir", "MTU": "mtu",
		"nonsense": "", "x": "", "": "",
	} {
		if got := suggest(unknown, known); got != want {
			t.Errorf("%s: want %q, got %q", unknown, want, got)
		}
	}
}

// TestEditDistance holds the table against the definition by recursion.
func TestEditDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringMatching(`[abc]{0,5}`).Draw(t, "a")
		b := rapid.StringMatching(`[abc]{0,5}`).Draw(t, "b")
		if got, want := editDistance(a, b), naiveDistance(a, b); got != want {
			t.Fatalf("%q %q: want %d, got %d", a, b, want, got)
		}
	})
}

func naiveDistance(a, b string) int {
	if a == "" || b == "" {
		return len(a) + len(b)
	}
	change := naiveDistance(a[1:], b[1:])
	if a[0] != b[0] {
		change++
	}
	best := min(change, naiveDistance(a[1:], b)+1, naiveDistance(a, b[1:])+1)
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		best = min(best, naiveDistance(a[2:], b[2:])+1)
	}
	return best
}

func TestFormat(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::"), netip.MustParseAddr("::5")}
	for _, tc := range []struct {
		value any
		want  string
	}{
		{"plain", "plain"}, {"", `""`}, {"true", `"true"`}, {"007", `"007"`}, {"a b", `"a b"`}, {"eth*", "eth*"}, {"*", `"*"`},
		{"v0.1.0", "v0.1.0"}, {"0x10/0x10", "0x10/0x10"}, {"a,b", `"a,b"`}, {"- a", `"- a"`}, {"\x1b", `"\x1b"`}, {"null", `"null"`},
		{uint16(7), "7"}, {-1, "-1"}, {addrs, `[10.0.0.1, "fd00::", "::5"]`}, {[]string{}, "[]"}, {[]string{"a", "1"}, `[a, "1"]`},
		{time.Date(2026, 11, 30, 3, 14, 0, 0, time.UTC), "2026-11-30T03:14:00Z"},
	} {
		if got := Format(tc.value); got != tc.want {
			t.Errorf("%v: want %s, got %s", tc.value, tc.want, got)
		}
	}
}

// TestFormatParses: what Format writes, alone or in a list, is read as what it was.
func TestFormatParses(t *testing.T) {
	type document struct {
		One  string   `yaml:"one"`
		List []string `yaml:"list"`
	}
	rapid.Check(t, func(t *rapid.T) {
		want := document{One: rapid.String().Draw(t, "one"), List: rapid.SliceOf(rapid.StringMatching(`[a-z0-9:,*&!?\[\]{}#'"|>%@/ \\=+.-]{0,8}`)).Draw(t, "list")}
		text := "one: " + Format(want.One) + "\nlist: " + Format(want.List) + "\n"
		doc, err := Parse("x", []byte(text))
		if err != nil {
			t.Fatalf("%s\n%v", text, err)
		}
		var got document
		if problems := doc.DecodeAll(&got); problems != nil {
			t.Fatalf("%s\n%v", text, problems)
		}
		if got.One != want.One || !slices.Equal(got.List, want.List) {
			t.Fatalf("%s\nwant %q, got %q", text, want, got)
		}
	})
}

func TestLeaves(t *testing.T) {
	s := settings{Name: "n1", Port: 7}
	s.Dir.Path = "/x"
	var got []string
	for _, leaf := range Leaves(&s) {
		got = append(got, leaf.Key+"="+Text(leaf.Value))
	}
	want := []string{"name=n1", "port=7", "count=0", "color=", "address=", "prefixes=", "issued=0001-01-01T00:00:00Z", "dir.path=/x", "dir.rescan-every=0", "keys="}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// FuzzParse: no document makes the reader panic.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/problems/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<12 {
			t.Skip() // size is TestHostile's
		}
		_ = problemsOf(data, "x.yaml")
	})
}
