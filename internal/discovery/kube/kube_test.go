package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record/recordtest"
)

// kubeconfig writes one that leads to a server.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	type fields = map[string]any
	text, err := json.Marshal(fields{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []fields{{"name": "c", "cluster": fields{"server": server, "insecure-skip-tls-verify": true}}},
		"users":    []fields{{"name": "c", "user": fields{"token": "secret"}}},
		"contexts": []fields{{"name": "c", "context": fields{"cluster": "c", "user": "c"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// closing is a listener that closes every connection as soon as something was said on it.
func closing(t *testing.T) net.Addr {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = connection.Read(make([]byte, 4096)) // what is unread would make it a reset
			connection.Close()
		}
	}()
	return listener.Addr()
}

// TestNobodyThere: a server that is away is a problem in seconds, whatever the network makes of it; nothing else is
// said, nobody waits, and Run ends when it is told to.
func TestNobodyThere(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for name, addr := range map[string]net.Addr{"connections are refused": nobody.Addr(), "connections are closed": closing(t)} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			self := cluster.NodeID{Cluster: "default", Name: "n1"}
			k, err := New(Options{Kubeconfig: kubeconfig(t, "https://"+addr.String()), Self: self, Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			events, done := make(chan discovery.Event, 100), make(chan error)
			go func() { done <- k.Run(ctx, func(e discovery.Event) { events <- e }) }()
			select {
			case e := <-events:
				if e.Kind != discovery.Problems || len(e.Problems) != 1 || !strings.Contains(e.Problems[0].Message, "not reachable since") || e.Problems[0].Where != "https://"+addr.String() {
					t.Errorf("%+v", e)
				}
			case <-time.After(30 * time.Second):
				t.Error("nothing was said in half a minute")
			}
			if err := k.Publish(ctx, recordtest.Sample("n1", 1)); err == nil || !strings.Contains(err.Error(), "has not said yet") {
				t.Errorf("publish: %v", err)
			}
			k.Report(discovery.Report{Mode: "strict"})
			short, end := context.WithTimeout(ctx, time.Second)
			defer end()
			if err := k.Withdraw(short); err == nil || !strings.HasPrefix(err.Error(), "withdraw the record of default/n1: ") {
				t.Errorf("withdraw: %v", err)
			}
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Error("Run goes on after its context has ended")
			}
			for len(events) > 0 {
				if e := <-events; e.Kind != discovery.Problems || len(e.Problems) != 1 {
					t.Errorf("later: %+v", e)
				}
			}
			if log.Len() > 0 {
				t.Errorf("logged:\n%s", log.String())
			}
		})
	}
}

// TestWatchOfNothing: a connection that was closed is no watch, though the library says so.
func TestWatchOfNothing(t *testing.T) {
	c, _, err := connect(kubeconfig(t, "https://"+closing(t).String()))
	if err != nil {
		t.Fatal(err)
	}
	var heard error
	lists := c.lists(resource{group: core, plural: "pods"}, func(err error) { heard = err })
	if _, err := cache.ToListerWatcherWithContext(lists).WatchWithContext(t.Context(), metav1.ListOptions{}); err == nil || heard == nil {
		t.Errorf("watch: %v, heard %v", err, heard)
	}
}

func TestNewProblems(t *testing.T) {
	self := cluster.NodeID{Cluster: "default", Name: "n1"}
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, kubeconfig, want string }{
		{"no file", filepath.Join(t.TempDir(), "none"), "no such file"},
		{"no kubeconfig", broken, "prepare to reach the API server: "},
		{"no pod", "", "set kubernetes.kubeconfig"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := New(Options{Kubeconfig: test.kubeconfig, Self: self}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
}

// TestPublishRefuses: nothing is kept that would not be read, or is another machine's.
func TestPublishRefuses(t *testing.T) {
	k, err := New(Options{Kubeconfig: kubeconfig(t, "https://127.0.0.1:1"), Self: cluster.NodeID{Cluster: "default", Name: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	keyless := recordtest.Sample("n1", 1)
	keyless.Keys = nil
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name string
		ctx  context.Context
		node cluster.Node
		want string
	}{
		{"another machine", t.Context(), recordtest.Sample("n2", 2), "this machine is default/n1"},
		{"no key", t.Context(), keyless, "spec.keys: none"},
		{"too late", gone, recordtest.Sample("n1", 1), "canceled"},
	} {
		if err := k.Publish(test.ctx, test.node); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if k.desk.record.wanted != nil {
			t.Errorf("%s: kept", test.name)
		}
	}
}

// TestDebugging: what the library calls an error is debugging here, and costs nothing when nobody debugs.
func TestDebugging(t *testing.T) {
	for level, want := range map[slog.Level]string{slog.LevelInfo: "", slog.LevelDebug: "level=DEBUG msg=lost g.reflector=pods g.try=1\n"} {
		var text bytes.Buffer
		plain := slog.NewTextHandler(&text, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
		logger := logr.FromSlogHandler(debugging{plain}.WithGroup("g")).WithValues("reflector", "pods")
		logger.Error(nil, "lost", "try", 1) // asks nobody whether errors are wanted
		if diff := cmp.Diff(want, text.String()); diff != "" {
			t.Errorf("%v (-want +got)\n%s", level, diff)
		}
	}
}

// TestMirror: what a list lacks is gone, what a watch says is taken in, and every change is heard of.
func TestMirror(t *testing.T) {
	heard := 0
	m := mirror[string]{changed: func() { heard++ }, decode: func(o *object, before string) string { return before + o.ResourceVersion }}
	at := func(namespace, name, version string) *object {
		o := &object{}
		o.Namespace, o.Name, o.ResourceVersion = namespace, name, version
		return o
	}
	if _, read := m.all(); read {
		t.Error("read before anything came")
	}
	steps := []struct {
		do   func() error
		want string
	}{
		{func() error { return m.Replace([]any{at("", "a", "1"), at("x", "a", "2"), at("y", "a", "3")}, "") }, "map[a:1 x/a:2 y/a:3]"},
		{func() error { return m.Add(at("", "b", "4")) }, "map[a:1 b:4 x/a:2 y/a:3]"},
		{func() error { return m.Update(at("x", "a", "5")) }, "map[a:1 b:4 x/a:25 y/a:3]"},
		{func() error { return m.Delete(at("y", "a", "6")) }, "map[a:1 b:4 x/a:25]"},
		{func() error { return m.Replace([]any{at("x", "a", "7")}, "") }, "map[x/a:257]"},
		{func() error { return m.Replace(nil, "") }, "map[]"},
	}
	for i, step := range steps {
		if err := step.do(); err != nil {
			t.Error(err)
		}
		if items, read := m.all(); fmt.Sprint(items) != step.want || !read || heard != i+1 {
			t.Errorf("step %d: %v, read %v, heard of %d changes; want %s", i+1, items, read, heard, step.want)
		}
	}
}

// TestSlim: what may be large and is not read does not stay in memory.
func TestSlim(t *testing.T) {
	o := parse(t, `{"metadata":{"name":"n1","labels":{"a":"b"},"annotations":{"essay":"long"},"managedFields":[{"manager":"kubectl"}]}}`)
	if _, err := slim(o); err != nil || o.Annotations != nil || o.ManagedFields != nil || o.Labels["a"] != "b" {
		t.Errorf("%v, %+v", err, o)
	}
	list := &objects{Items: []object{*o}}
	copied := list.DeepCopyObject().(*objects)
	copied.Items[0].Labels["a"] = "c"
	if list.Items[0].Labels["a"] != "b" {
		t.Error("a copy shares its labels")
	}
}
