package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"warren/internal/api"
	"warren/internal/cluster"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// run is Main with streams in memory.
func run(t *testing.T, input string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Main(args, Streams{In: strings.NewReader(input), Out: &out, Err: &err})
	return code, out.String(), err.String()
}

func TestExitCodes(t *testing.T) {
	empty := t.TempDir()
	for _, test := range []struct {
		name   string
		args   []string
		code   int
		stderr string // part of it
	}{
		{"version", []string{"version"}, exitOK, ""},
		{"help", []string{"--help"}, exitOK, ""},
		{"unknown command", []string{"statsu"}, exitUsage, `unknown command "statsu"`},
		{"unknown subcommand", []string{"ipcache", "lst"}, exitUsage, `unknown command "lst"`},
		{"unknown flag", []string{"status", "--jason"}, exitUsage, "--jason"},
		{"too many arguments", []string{"status", "now"}, exitUsage, "now"},
		{"unknown output format", []string{"status", "-o", "yaml"}, exitUsage, "text or json"},
		{"no address", []string{"ipcache", "get", "n2"}, exitUsage, "not an IP address"},
		{"unknown source", []string{"ipcache", "list", "--source", "rumour"}, exitUsage, "rumour"},
		{"bad flag value", []string{"agent", "--mode", "lenient", "--print-config"}, exitUsage, "lenient"},
		{"no agent", []string{"status", "--run-dir", empty}, exitNotRunning, "no agent is running"},
		{"no such file", []string{"keys", "public", filepath.Join(empty, "none")}, exitFailure, "no such file"},
		{"configuration that is not there", []string{"agent", "--config", filepath.Join(empty, "none")}, exitFailure, "none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, _, stderr := run(t, "", test.args...)
			if code != test.code || !strings.Contains(stderr, test.stderr) {
				t.Errorf("exit code %d, want %d; stderr %q, want %q in it", code, test.code, stderr, test.stderr)
			}
		})
	}
}

func TestKeysGenerateAndPublicFitTogether(t *testing.T) {
	_, private, _ := run(t, "", "keys", "generate")
	key, err := cluster.ParsePrivateKey(strings.TrimSpace(private))
	if err != nil {
		t.Fatal(err)
	}
	code, public, stderr := run(t, private, "keys", "public")
	if code != exitOK || strings.TrimSpace(public) != key.Public().String() {
		t.Errorf("exit code %d, %q, %q", code, public, stderr)
	}
	code, _, stderr = run(t, private[:40], "keys", "public")
	if code != exitFailure || strings.Contains(stderr, private[:8]) {
		t.Errorf("half a key: exit code %d, %q", code, stderr)
	}
}

func TestPrintConfigIsTheConfigurationThatItReads(t *testing.T) {
	code, first, stderr := run(t, "", "agent", "--print-config", "--node", "n9", "--mark", "0x20/0x30")
	if code != exitOK {
		t.Fatal(stderr)
	}
	path := filepath.Join(t.TempDir(), "warren.yaml")
	if err := os.WriteFile(path, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	_, second, stderr := run(t, "", "agent", "--config", path, "--print-config")
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("%s(-printed +read):\n%s", stderr, diff)
	}
}

func TestEveryCommandExplainsItself(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Short == "" {
			t.Errorf("%s has no short help", cmd.CommandPath())
		}
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit(newRoot())
}

func TestShellCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if code, out, stderr := run(t, "", "completion", shell); code != exitOK || !strings.Contains(out, "warren") {
			t.Errorf("%s: exit code %d, %s", shell, code, stderr)
		}
	}
	if _, out, _ := run(t, "", "__complete", "status", "-o", ""); !strings.Contains(out, "json") {
		t.Errorf("the values of -o are not completed: %q", out)
	}
}

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestPeerState(t *testing.T) {
	tests := []struct {
		name, mode, want string
		peer             api.Peer
	}{
		{"encrypted to", "strict", "confirmed", api.Peer{State: "confirmed", Encrypting: true}},
		{"not encrypted to", "permissive", "configured, IN CLEAR", api.Peer{State: "configured"}},
		{"not encrypted to, while nothing else is sent", "strict", "configured, DROPPED", api.Peer{State: "configured"}},
		{"of another mode", "permissive", "stale, observe", api.Peer{State: "stale", Encrypting: true, Mode: "observe"}},
	}
	for _, test := range tests {
		if got := peerState(test.peer, test.mode); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestHandshake(t *testing.T) {
	ago, ahead := now.Add(-90*time.Second), now.Add(time.Hour)
	tests := []struct {
		name, want string
		peer       api.Peer
	}{
		{"not in the device", "not installed", api.Peer{}},
		{"none so far", "never", api.Peer{Installed: true}},
		{"a while ago", "1m30s ago", api.Peer{Installed: true, LastHandshake: &ago}},
		{"by another clock", "before the clock was set back", api.Peer{Installed: true, LastHandshake: &ahead}},
	}
	for _, test := range tests {
		if got := handshake(test.peer, now); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func exampleStatus() api.Status {
	handshake := now.Add(-42 * time.Second)
	return api.Status{
		Version: "v0.1.0", Node: "n1", Cluster: "default", PID: 4711, Started: now.Add(-time.Hour), NotReady: []string{"underlay: no device"},
		Mode: "permissive", ModeSource: api.ModeCommanded, Ingress: "underlay", PublicKey: "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=",
		Addresses: []string{"10.0.0.1"}, Prefixes: []string{"10.42.1.0/24"}, Exempt: []string{"192.0.2.7/32 tcp/179", "10.42.9.0/24"},
		Device: api.Device{Name: "warren0b", Engine: "kernel", Index: 7, MTU: 1440, Port: 51881, Mark: "0x10/0x10", Epoch: 2},
		Devices: []api.Device{
			{Name: "warren0", Engine: "kernel", Index: 5, MTU: 1440, Port: 51880, Mark: "0x10/0x10", Epoch: 1},
			{Name: "warren0b", Engine: "kernel", Index: 7, MTU: 1440, Port: 51881, Mark: "0x10/0x10", Epoch: 2},
		},
		Rotation: api.Rotation{Epoch: 2, Made: now, Stage: api.RotationMoving, Keys: []api.Key{}, Moved: []string{"n2"}, Waiting: []string{"n3"}, Late: []string{}},
		Underlay: []api.Underlay{{Name: "eth0", Index: 2, MTU: 1500, Attach: "tcx", Primary: true}, {Name: "eth1", Index: 3, MTU: 1500}},
		Entries:  5,
		Peers: []api.Peer{
			{Node: "n2", PublicKey: "CsVcixrwjfmpb3VsGOyTI+QAuLIJ3sYU8oYXvvbwGkw=", Endpoint: "10.0.0.2:51880", Installed: true,
				AllowedIPs: []string{"10.0.0.2/32", "10.42.2.0/24"}, LastHandshake: &handshake, ReceivedBytes: 1536, SentBytes: 3 << 30,
				State: "confirmed", Since: now.Add(-time.Minute), Encrypting: true, Mode: "strict", RTT: 0.42, Loss: 0.25, MTU: 1328, PathMTU: 1388},
			{Node: "n3", PublicKey: "tPV6t7WzIb/vhnP/9WACoBcwPCJFnbGt6RhzT8fsK1U=", Endpoint: "10.0.0.3:51880", State: "configured", Since: now, MTU: 1440},
		},
		Reasons:  []api.Reason{{Program: "to_netdev", Reason: "redirected", Packets: 9, Bytes: 900, Description: "to a peer"}, {Program: "to_netdev", Reason: "no_pair"}},
		Problems: []api.Problem{{Where: "node default/n4", Message: "record refused", Remedy: "correct it", Since: now}},
	}
}

func TestStatusAsText(t *testing.T) {
	var out bytes.Buffer
	printStatus(&out, exampleStatus(), now)
	golden(t, "status.golden", out.Bytes())
}

// TestStatusAsJSON keeps the field names that scripts read.
func TestStatusAsJSON(t *testing.T) {
	text, err := json.MarshalIndent(exampleStatus(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "status.json.golden", append(text, '\n'))
}

func TestDetailAsText(t *testing.T) {
	entry := api.Entry{Prefix: netip.MustParsePrefix("10.0.0.2/32"), Identity: 7, Labels: []string{"reserved:kube-apiserver", "reserved:remote-node"}, Endpoint: "10.0.0.2", Key: 1, HasPair: true, Owner: "default/n2", Flags: []string{"node"}}
	kernel := entry
	kernel.Labels, kernel.Owner, kernel.Identity = nil, "-", 6
	var out bytes.Buffer
	printDetail(&out, api.EntryDetail{
		Entry: entry, Address: "10.0.0.2", Kernel: &kernel,
		Facts: []api.Fact{
			{Prefix: entry.Prefix, Source: cluster.SourceKubeAPIServer, Resource: "file/apiserver.yaml", Labels: []string{"reserved:kube-apiserver"}, Owner: "-"},
			{Prefix: entry.Prefix, Source: cluster.SourceDirectory, Resource: "node/default/n2", Labels: []string{"reserved:remote-node"}, Endpoint: "10.0.0.2", Key: 1, HasPair: true, Owner: "default/n2"},
		},
		Fields: []api.FieldFrom{{Field: "pair", Source: cluster.SourceDirectory, Resource: "node/default/n2"}},
	})
	golden(t, "detail.golden", out.Bytes())
}

// TestDetailOutside: an API server outside of the cluster is no part of the datapath, and nothing is wrong with that.
func TestDetailOutside(t *testing.T) {
	entry := api.Entry{Prefix: netip.MustParsePrefix("192.0.2.7/32"), Identity: 16777216, Labels: []string{"cidr:192.0.2.7/32", "reserved:kube-apiserver", "reserved:world"}, Owner: "-"}
	var out bytes.Buffer
	printDetail(&out, api.EntryDetail{Entry: entry, Address: "192.0.2.7", Agree: true})
	if !strings.Contains(out.String(), "kernel: holds nothing, as of all that is not in the cluster") {
		t.Error(out.String())
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}
