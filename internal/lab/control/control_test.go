package control

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var address = netip.MustParseAddr("10.10.0.1")

// planeOf makes a plane's folder, in which nothing runs.
func planeOf(t *testing.T) *Plane {
	t.Helper()
	p, err := create(Options{Dir: t.TempDir(), Binaries: "/nowhere", Address: address, Names: []string{"fd00:10::1", "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestCreateRefuses(t *testing.T) {
	tests := []struct {
		name    string
		options Options
	}{
		{name: "relative folder", options: Options{Dir: "plane", Address: address}},
		{name: "no address", options: Options{Dir: t.TempDir()}},
		{name: "loopback", options: Options{Dir: t.TempDir(), Address: netip.MustParseAddr("::1")}},
		{name: "unspecified", options: Options{Dir: t.TempDir(), Address: netip.IPv4Unspecified()}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, err := create(test.options); err == nil {
				t.Errorf("create(%+v) is content", test.options)
			}
		})
	}
}

// TestOpen: a plane is found again from its folder, with the keys that it had.
func TestOpen(t *testing.T) {
	p := planeOf(t)
	before, err := os.ReadFile(p.Authority())
	if err != nil {
		t.Fatal(err)
	}
	again, err := Open(p.Options.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Options, again.Options, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("options (-made +opened):\n%s", diff)
	}
	if _, err := create(p.Options); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(again.Authority())
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the authority changed (%v)", err)
	}
	if _, err := Open(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Open of an empty folder: %v", err)
	}
}

// TestServerCertificate: which names the API server may be called by.
func TestServerCertificate(t *testing.T) {
	p := planeOf(t)
	tests := []struct {
		name string
		good bool
	}{
		{"10.10.0.1", true}, {"127.0.0.1", true}, {"::1", true}, {"10.96.0.1", true}, {"fd00:10::1", true}, {"n1", true},
		{"kubernetes.default.svc", true}, {"localhost", true},
		{"10.10.0.2", false}, {"10.96.0.2", false}, {"n2", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := verified(t, p, "apiserver", x509.VerifyOptions{DNSName: test.name, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			if (err == nil) != test.good {
				t.Errorf("the certificate for %s: %v", test.name, err)
			}
		})
	}
}

// TestCertificateRoles: nobody can take another's part.
func TestCertificateRoles(t *testing.T) {
	p := planeOf(t)
	if _, _, err := p.NodeCertificate("n1", address); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Kubeconfig(Client{User: "system:node:n1", Groups: []string{"system:nodes"}}); err != nil {
		t.Fatal(err)
	}
	client, server := x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	tests := []struct {
		name  string
		usage x509.ExtKeyUsage
		good  bool
	}{
		{"admin", client, true}, {"admin", server, false},
		{"managers", server, true},
		{"client-system-node-n1", client, true}, {"client-system-node-n1", server, false},
		{"node-n1", client, true}, {"node-n1", server, true},
		{"front-proxy-client", client, false}, // of the other authority
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if err := verified(t, p, test.name, x509.VerifyOptions{KeyUsages: []x509.ExtKeyUsage{test.usage}}); (err == nil) != test.good {
				t.Errorf("usage %d: %v", test.usage, err)
			}
		})
	}
}

// verified checks a certificate against the plane's authority.
func verified(t *testing.T, p *Plane, name string, options x509.VerifyOptions) error {
	t.Helper()
	authority, _, err := p.keys.load("ca")
	if err != nil {
		t.Fatal(err)
	}
	options.Roots = x509.NewCertPool()
	options.Roots.AddCert(authority)
	certificate, _, err := p.keys.load(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = certificate.Verify(options)
	return err
}

func TestKubeconfig(t *testing.T) {
	p := planeOf(t)
	tests := []struct {
		name         string
		client       Client
		server, user string
		groups       []string
		token        string
	}{
		{name: "certificate", client: Client{User: "system:node:n1", Groups: []string{"system:nodes"}}, server: "https://10.10.0.1:6443",
			user: "system:node:n1", groups: []string{"system:nodes"}},
		{name: "token", client: Client{User: "agent", Token: "secret"}, server: "https://10.10.0.1:6443", token: "secret"},
		{name: "elsewhere", client: Client{User: "admin", Groups: []string{adminGroup}, Server: netip.MustParseAddrPort("127.0.0.1:7777")},
			server: "https://127.0.0.1:7777", user: "admin", groups: []string{adminGroup}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path, err := p.Kubeconfig(test.client)
			if err != nil {
				t.Fatal(err)
			}
			config := readKubeconfig(t, path)
			if got := config.Clusters[0].Cluster.Server; got != test.server {
				t.Errorf("server %s, want %s", got, test.server)
			}
			user := config.Users[0].User
			if user.Token != test.token {
				t.Errorf("token %q, want %q", user.Token, test.token)
			}
			if test.token != "" {
				return
			}
			pair, err := tls.X509KeyPair(user.Certificate, user.Key)
			if err != nil {
				t.Fatal(err)
			}
			if got := pair.Leaf.Subject; got.CommonName != test.user || !cmp.Equal(got.Organization, test.groups) {
				t.Errorf("it is %s in %v, want %s in %v", got.CommonName, got.Organization, test.user, test.groups)
			}
		})
	}
}

// kubeconfig is what the tests look at; bytes are base64 in it.
type kubeconfig struct {
	Clusters []struct {
		Cluster struct{ Server string } `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		User struct {
			Token       string `json:"token"`
			Certificate []byte `json:"client-certificate-data"`
			Key         []byte `json:"client-key-data"`
		} `json:"user"`
	} `json:"users"`
}

func readKubeconfig(t *testing.T, path string) (config kubeconfig) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	return config
}

// TestPID: a process counts only if it is the plane's component; one that got its id later does not.
func TestPID(t *testing.T) {
	p := planeOf(t)
	fake := filepath.Join(t.TempDir(), string(Etcd))
	if err := os.Symlink("/bin/sh", fake); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		args  []string
		found bool
	}{
		{name: "the component", args: []string{"-c", "read x", "--data-dir=" + p.Options.Dir + "/etcd"}, found: true},
		{name: "that of another folder", args: []string{"-c", "read x", "--data-dir=" + p.Options.Dir + "2/etcd"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			command := exec.Command(fake, test.args...)
			input, err := command.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			for { // until then nobody can tell what it is going to be
				line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", command.Process.Pid))
				if err != nil {
					t.Fatal(err)
				}
				if len(line) > 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			if err := os.WriteFile(p.pidPath(Etcd), []byte(strconv.Itoa(command.Process.Pid)), 0o600); err != nil {
				t.Fatal(err)
			}
			if pid := p.PID(Etcd); (pid != 0) != test.found {
				t.Errorf("PID = %d", pid)
			}
			if pid := p.PID(APIServer); pid != 0 {
				t.Errorf("the API server has the process id %d", pid)
			}
			_ = input.Close()
			_ = command.Wait()
			if pid := p.PID(Etcd); pid != 0 {
				t.Errorf("PID = %d of a process that has ended", pid)
			}
		})
	}
}

// TestStartSaysWhy: the error of a component that ends at once has the end of its log. A shell ends because it knows
// no option of etcd's, and says so.
func TestStartSaysWhy(t *testing.T) {
	bin := t.TempDir()
	if err := os.Symlink("/bin/sh", filepath.Join(bin, string(Etcd))); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err := Start(t.Context(), Options{Dir: dir, Binaries: bin, Address: address})
	if err == nil {
		t.Fatal("a shell is an etcd")
	}
	p, openErr := Open(dir)
	if openErr != nil {
		t.Fatal(openErr)
	}
	log, readErr := os.ReadFile(p.LogPath(Etcd))
	first, _, _ := strings.Cut(string(log), "\n")
	if readErr != nil || first == "" || !strings.Contains(err.Error(), first) {
		t.Errorf("Start: %v, want in it what the log has: %q (%v)", err, log, readErr)
	}
}

// TestForward: bytes go both ways, a server that is away closes the connection, and the end of the context ends all.
func TestForward(t *testing.T) {
	echo := listen(t)
	go func() {
		for {
			connection, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(connection, connection); _ = connection.Close() }()
		}
	}()
	front := listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	var away atomic.Bool
	ended := make(chan error, 1)
	go func() {
		ended <- Forward(ctx, front, func(ctx context.Context) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("away")
			}
			return net.Dial("tcp", echo.Addr().String())
		})
	}()

	talk := func() string {
		connection, err := net.Dial("tcp", front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		_ = connection.SetDeadline(time.Now().Add(30 * time.Second))
		_, _ = connection.Write([]byte("hello"))
		answer := make([]byte, 5)
		n, _ := io.ReadFull(connection, answer)
		return string(answer[:n])
	}
	if got := talk(); got != "hello" {
		t.Errorf("the answer is %q", got)
	}
	away.Store(true)
	if got := talk(); got != "" {
		t.Errorf("the answer of a server that is away is %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Forward: %v", err)
	}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// TestCopyFolder: a snapshot is whole and private.
func TestCopyFolder(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	if err := os.MkdirAll(filepath.Join(from, "member", "wal"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "member", "wal", "0"), []byte("entry"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copyFolder(from, to); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(to, "member", "wal", "0"))
	if err != nil || string(text) != "entry" {
		t.Errorf("the copy has %q (%v)", text, err)
	}
	if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the copy's mode is %v (%v)", info.Mode(), err)
	}
	if err := copyFolder(from, to); err == nil {
		t.Error("a copy over another one")
	}
}

// TestFindBinaries: what the environment names counts, whatever else there is.
func TestFindBinaries(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(BinariesVariable, dir)
	if _, err := FindBinaries(""); !errors.Is(err, ErrNoBinaries) {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, string(APIServer)), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if found, err := FindBinaries(""); err != nil || found != dir {
		t.Errorf("FindBinaries() = %q, %v, want %q", found, err, dir)
	}
	t.Setenv(BinariesVariable, "")
	cache := filepath.Join(t.TempDir(), ".cache", "kube")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cache, string(APIServer)), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(cache))
	if found, err := FindBinaries(""); err != nil || found != cache {
		t.Errorf("FindBinaries() = %q, %v, want %q", found, err, cache)
	}
}
