package kube

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/kube"
	"warren/internal/discovery/record/recordtest"
	"warren/internal/lab/control"
	"warren/test/admin"
)

// patience is how long anything may take on a machine that has other work.
const patience = 60 * time.Second

const (
	allRecords = admin.Records
	theConfig  = "/apis/warren.network/v1alpha1/warrenconfigs/default"
	allConfigs = "/apis/warren.network/v1alpha1/warrenconfigs"
	allNodes   = "/api/v1/nodes"
	allPods    = "/api/v1/namespaces/default/pods"
	allSlices  = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
)

type fields = admin.Fields

// administrator talks to the API server directly, as somebody who may do everything.
type administrator struct {
	*admin.Client
	t testing.TB
}

func administratorOf(t testing.TB, plane *control.Plane) administrator {
	t.Helper()
	client, err := admin.Connect(plane)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Transport.CloseIdleConnections)
	return administrator{client, t}
}

// do sends a request that has to succeed, and returns the object in the answer.
func (a administrator) do(method, path string, body any) fields {
	a.t.Helper()
	answer, err := a.Do(method, path, body)
	if err != nil {
		a.t.Fatal(err)
	}
	var object fields
	if err := json.Unmarshal(answer, &object); err != nil {
		a.t.Fatal(err)
	}
	return object
}

// remove deletes an object that may be there.
func (a administrator) remove(paths ...string) {
	a.t.Helper()
	for _, path := range paths {
		if status, answer, err := a.Try(http.MethodDelete, path, nil); err != nil || status >= 300 && status != http.StatusNotFound {
			a.t.Fatalf("delete %s: %d %v %s", path, status, err, answer)
		}
	}
}

// install applies the CustomResourceDefinitions, and waits until they are served.
func install(t testing.TB, plane *control.Plane) {
	t.Helper()
	dir, err := filepath.Abs("../../deploy/helm/warren/crds")
	if err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"apply", "--server-side", "-f", dir},
		{"wait", "--for=condition=established", "--timeout=60s", "crd/warrennodes.warren.network", "crd/warrenconfigs.warren.network"},
	} {
		if _, err := plane.Kubectl(context.Background(), "", arguments...); err != nil {
			t.Fatal(err)
		}
	}
}

// addNode makes a Node with an address and podCIDRs, and returns its UID.
func (a administrator) addNode(name, address string, podCIDRs ...string) string {
	a.t.Helper()
	spec := fields{}
	if len(podCIDRs) > 0 {
		spec = fields{"podCIDR": podCIDRs[0], "podCIDRs": podCIDRs}
	}
	made := a.do(http.MethodPost, allNodes, fields{"apiVersion": "v1", "kind": "Node", "metadata": fields{"name": name}, "spec": spec})
	a.do(http.MethodPatch, allNodes+"/"+name+"/status", fields{"status": fields{"addresses": []fields{{"type": "InternalIP", "address": address}}}})
	a.t.Cleanup(func() { a.remove(allNodes + "/" + name) })
	return made["metadata"].(fields)["uid"].(string)
}

// follower is an engine that runs, and what its events add up to.
type follower struct {
	*kube.Kube
	t    testing.TB
	stop func()

	mu       sync.Mutex
	records  map[string]cluster.Node
	local    *discovery.Machine
	servers  []netip.AddrPort
	settings []discovery.Setting
	problems []discovery.Problem
	synced   bool
	order    []string // the kinds, and of records their names
	heard    func(discovery.Event)
}

// follow runs an engine for the machine of that name until the test ends; heard takes in every event, or is nil.
func follow(t testing.TB, kubeconfig, name string, heard func(discovery.Event)) *follower {
	t.Helper()
	k := idle(t, kubeconfig, name)
	f := &follower{Kube: k, t: t, records: map[string]cluster.Node{}, heard: heard}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx, f.take) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run of %s: %v", name, err)
			}
		case <-time.After(15 * time.Second):
			t.Errorf("Run of %s goes on after its context has ended", name)
		}
	})
	t.Cleanup(f.stop)
	return f
}

func (f *follower) take(e discovery.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	what := e.Kind.String()
	switch e.Kind {
	case discovery.Upsert:
		f.records[e.ID.Name] = e.Node
		what += " " + e.ID.Name
	case discovery.Delete:
		if _, known := f.records[e.ID.Name]; !known {
			f.t.Errorf("delete of %s, which is not known", e.ID)
		}
		delete(f.records, e.ID.Name)
		what += " " + e.ID.Name
	case discovery.Local:
		f.local = &e.Local
	case discovery.APIServers:
		f.servers = e.APIServers
	case discovery.Settings:
		f.settings = e.Settings
	case discovery.Problems:
		f.problems = e.Problems
	case discovery.Synced:
		f.synced = true
	}
	f.order = append(f.order, what)
	if f.heard != nil {
		f.heard(e)
	}
}

// until waits for what the events add up to.
func (f *follower) until(what string, done func() bool) {
	f.t.Helper()
	locked := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return done()
	}
	for deadline := time.Now().Add(patience); !locked(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("not within %v: %s\nrecords %v\nlocal %v\nservers %v\nsettings %v\nproblems %v\nevents %v",
				patience, what, slices.Sorted(maps.Keys(f.records)), f.local, f.servers, f.settings, f.problems, f.order)
		}
	}
}

func (f *follower) untilSynced() {
	f.t.Helper()
	f.until("synced", func() bool { return f.synced })
}

// untilRecords waits until exactly these records are believed.
func (f *follower) untilRecords(names ...string) {
	f.t.Helper()
	f.until("records "+strings.Join(names, " "), func() bool { return slices.Equal(slices.Sorted(maps.Keys(f.records)), names) })
}

// untilProblem waits for a problem of which the text has these parts; none: until there is no problem.
func (f *follower) untilProblem(parts ...string) {
	f.t.Helper()
	f.until(fmt.Sprintf("problem %q", parts), func() bool {
		if len(parts) == 0 {
			return len(f.problems) == 0
		}
		return slices.ContainsFunc(f.problems, func(p discovery.Problem) bool {
			return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(p.String(), part) })
		})
	})
}

// show returns how many events there were, and reads the state without them changing.
func (f *follower) show(read func()) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if read != nil {
		read()
	}
	return len(f.order)
}

// untilPublished publishes a node until the engine says that it is there.
func (f *follower) untilPublished(node cluster.Node) {
	f.t.Helper()
	var err error
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err = f.Publish(context.Background(), node)
		there := false
		f.show(func() { there = err == nil && f.records[node.ID.Name].Version == node.Version })
		if there {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("publish: %v", err)
		}
	}
}

// gate is a proxy in front of the API server that counts what goes through it, and closes when it is told.
type gate struct {
	server *httptest.Server
	config string // a kubeconfig that leads through the gate, as an administrator

	mu       sync.Mutex
	refuse   int  // HTTP status of every answer; 0 lets through
	brief    bool // watches end after two seconds
	outdated bool // watches that are taken up are so at a version that is long gone
	counts   map[string]int
	bytes    int64
}

func openGate(t testing.TB, a administrator) *gate {
	t.Helper()
	target, err := url.Parse(a.Base)
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{counts: map[string]int{}}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     a.Transport,
		FlushInterval: -1,
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	g.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := g.pass(r); status != 0 {
			w.WriteHeader(status)
			return
		}
		defer func() { _ = recover() }() // the proxy panics when a stream is cut, for a server that would log it
		forward.ServeHTTP(&counting{w, g}, r)
	}))
	g.server.EnableHTTP2 = true
	g.server.StartTLS()
	t.Cleanup(func() {
		g.server.CloseClientConnections()
		g.server.Close()
	})
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	text, err := json.Marshal(fields{
		"apiVersion": "v1", "kind": "Config", "current-context": "gate",
		"clusters": []fields{{"name": "gate", "cluster": fields{"server": g.server.URL, "certificate-authority-data": authority}}},
		"users":    []fields{{"name": "gate", "user": fields{}}},
		"contexts": []fields{{"name": "gate", "context": fields{"cluster": "gate", "user": "gate"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	g.config = filepath.Join(t.TempDir(), "gate.kubeconfig")
	if err := os.WriteFile(g.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return g
}

// pass counts a request and returns the status that it is refused with, or 0.
func (g *gate) pass(r *http.Request) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	query := r.URL.Query()
	what := r.Method
	if query.Get("watch") != "" {
		what = "WATCH"
		if g.brief {
			query.Set("timeoutSeconds", "2")
		}
		if g.outdated && query.Get("sendInitialEvents") == "" {
			query.Set("resourceVersion", "1")
			g.counts["outdated"]++
		}
		r.URL.RawQuery = query.Encode()
	}
	g.counts[what]++
	return g.refuse
}

// close answers everything with a status from now on, and cuts what runs; 0 opens again.
func (g *gate) close(status int) {
	g.set(func() { g.refuse = status })
	g.server.CloseClientConnections()
}

func (g *gate) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

// writes is how many requests wanted to change something.
func (g *gate) writes() (n int) {
	g.set(func() {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			n += g.counts[method]
		}
	})
	return n
}

type counting struct {
	http.ResponseWriter
	gate *gate
}

// Write implements http.ResponseWriter.
func (c *counting) Write(data []byte) (int, error) {
	c.gate.set(func() { c.gate.bytes += int64(len(data)) })
	return c.ResponseWriter.Write(data)
}

// Unwrap lets the proxy flush.
func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// sample returns a node; n decides its addresses and key.
func sample(name string, n byte) cluster.Node { return recordtest.Sample(name, n) }

// exposed returns a kubeconfig that leads to the API server from the test's namespace.
func exposed(t testing.TB, plane *control.Plane) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	at, err := plane.Expose(ctx)
	if err != nil {
		t.Fatal(err)
	}
	config, err := plane.Kubeconfig(control.Client{User: "agent", Groups: []string{"system:masters"}, Server: at, Path: filepath.Join(t.TempDir(), "config")})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// idle returns an engine that does not run.
func idle(t testing.TB, kubeconfig, name string) *kube.Kube {
	t.Helper()
	k, err := kube.New(kube.Options{Kubeconfig: kubeconfig, Self: cluster.NodeID{Cluster: "default", Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	return k
}
