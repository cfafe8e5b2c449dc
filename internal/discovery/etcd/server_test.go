package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record/recordtest"
)

// limit is how long the tests wait for what should take a second: the machine may be busy.
const limit = time.Minute

// server is a real etcd that a test starts, kills and takes data away from.
type server struct {
	t       *testing.T
	binary  string
	data    string
	client  string // host:port
	peer    string
	scheme  string
	args    []string
	process *exec.Cmd
}

// newServer starts an etcd of its own, on loopback.
func newServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{
		t: t, binary: etcdBinary(t), data: filepath.Join(t.TempDir(), "data"), client: freePort(t), peer: freePort(t), scheme: "http", args: args,
	}
	if slices.Contains(args, "--client-cert-auth") {
		s.scheme = "https"
	}
	t.Cleanup(s.kill)
	s.start()
	return s
}

// etcdBinary returns the etcd that scripts/kubetools.sh builds.
func etcdBinary(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("WARREN_KUBE_BIN")
	if folder == "" {
		t.Skip("runs with a real etcd: `make test-kube`, or WARREN_KUBE_BIN=FOLDER of scripts/kubetools.sh")
	}
	return filepath.Join(folder, "etcd")
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func (s *server) url() string { return s.scheme + "://" + s.client }

// start starts it with the data that it has. It need not answer yet.
func (s *server) start() {
	s.t.Helper()
	peer := "http://" + s.peer
	args := append([]string{"--name", "m", "--data-dir", s.data, "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", s.url(), "--advertise-client-urls", s.url(), "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "m=" + peer}, s.args...)
	s.process = exec.Command(s.binary, args...)
	s.process.Stderr = os.Stderr
	if err := s.process.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// kill ends it with SIGKILL.
func (s *server) kill() {
	if s.process == nil {
		return
	}
	_ = s.process.Process.Kill()
	_ = s.process.Wait()
	s.process = nil
}

// backup copies its data, while it does not run.
func (s *server) backup() string {
	s.t.Helper()
	copied := filepath.Join(s.t.TempDir(), "backup")
	if err := os.CopyFS(copied, os.DirFS(s.data)); err != nil {
		s.t.Fatal(err)
	}
	return copied
}

// restore puts the data of a backup in the place of its own; "" is no data.
func (s *server) restore(backup string) {
	s.t.Helper()
	if err := os.RemoveAll(s.data); err != nil {
		s.t.Fatal(err)
	}
	if backup == "" {
		return
	}
	if err := errors.Join(os.CopyFS(s.data, os.DirFS(backup)), os.Chmod(s.data, 0o700)); err != nil { // etcd wants it for itself
		s.t.Fatal(err)
	}
}

// admin is an operator's client.
type admin struct {
	t *testing.T
	*clientv3.Client
}

func (s *server) admin(change ...func(*clientv3.Config)) admin {
	s.t.Helper()
	config := clientv3.Config{Endpoints: []string{s.url()}, Logger: zap.NewNop(), DialTimeout: limit}
	for _, c := range change {
		c(&config)
	}
	client, err := clientv3.New(config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Close() })
	return admin{s.t, client}
}

func (a admin) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	a.t.Cleanup(cancel)
	return ctx
}

func (a admin) put(name, text string) {
	a.t.Helper()
	if _, err := a.Put(a.ctx(), testLayout.nodes()+name, text); err != nil {
		a.t.Fatal(err)
	}
}

func (a admin) delete(name string) {
	a.t.Helper()
	if _, err := a.Delete(a.ctx(), testLayout.nodes()+name); err != nil {
		a.t.Fatal(err)
	}
}

// get returns what the key of a machine says and the revision of everything.
func (a admin) get(name string) (now has, revision int64) {
	a.t.Helper()
	response, err := a.Get(a.ctx(), testLayout.nodes()+name)
	if err != nil {
		a.t.Fatal(err)
	}
	for _, kv := range response.Kvs {
		now = has{kv.Value, kv.Lease}
	}
	return now, response.Header.Revision
}

// listener is an agent: it runs an Etcd and knows what its events say.
type listener struct {
	t    *testing.T
	etcd *Etcd
	stop context.CancelFunc

	mu       sync.Mutex
	nodes    map[string]cluster.Node
	log      []string // every event, in one line
	problems []discovery.Problem
	servers  []discovery.Event
}

// listen runs an agent of that name.
func listen(t *testing.T, name string, o Options) *listener {
	t.Helper()
	o.Self = cluster.NodeID{Cluster: "default", Name: name}
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{t: t, etcd: e, nodes: map[string]cluster.Node{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx, l.take) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run of %s: %v", name, err)
		}
	})
	t.Cleanup(l.stop)
	return l
}

func (l *listener) take(e discovery.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e.Kind {
	case discovery.Upsert:
		l.nodes[e.ID.Name] = e.Node
	case discovery.Delete:
		delete(l.nodes, e.ID.Name)
	case discovery.Problems:
		l.problems = e.Problems
		return
	case discovery.Servers:
		l.servers = append(l.servers, e)
		return
	}
	l.log = append(l.log, show([]discovery.Event{e}))
}

// publish makes the record that n decides its own, until it is there.
func (l *listener) publish(n byte) {
	l.t.Helper()
	node := recordtest.Sample(l.etcd.Self.Name, n)
	eventually(l.t, "the record of "+l.etcd.Self.Name+" is published", func() bool {
		return l.etcd.Publish(context.Background(), node) == nil && l.number(l.etcd.Self.Name) == n
	})
}

// number returns which record of a machine is known, 0 for none.
func (l *listener) number(name string) byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if node, known := l.nodes[name]; known {
		return node.Addresses[0].As4()[3]
	}
	return 0
}

// knows waits until a machine's record is that one.
func (l *listener) knows(name string, n byte) {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("%s has record %d of %s", l.etcd.Self.Name, n, name), func() bool { return l.number(name) == n })
}

// heard returns all events, but problems, in one line each; those before are forgotten.
func (l *listener) heard() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.log = nil }()
	return l.log
}

// problem returns the problems that are there now.
func (l *listener) said() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []string
	for _, p := range l.problems {
		list = append(list, p.String())
	}
	return list
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
