package kube

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/discovery"
)

// TestServersFirst: where the agent reaches the API server is said first of all, and before it has answered: in strict mode
// it may be reached only because it is known.
func TestServersFirst(t *testing.T) {
	self := cluster.NodeID{Cluster: "default", Name: "n1"}
	k, err := New(Options{Kubeconfig: kubeconfig(t, "https://192.0.2.7:6443"), Self: self}) // RFC 5737: nobody
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var first discovery.Event
	_ = k.Run(ctx, func(e discovery.Event) {
		if first.Kind == 0 {
			first = e
		}
		cancel()
	})
	var got []string
	for _, server := range first.Servers {
		got = append(got, server.String())
	}
	if diff := cmp.Diff([]string{"192.0.2.7:6443"}, got); diff != "" || first.Kind != discovery.Servers {
		t.Errorf("the first event is %v (-want +got):\n%s", first.Kind, diff)
	}
}

func TestReachedOnce(t *testing.T) {
	r := reached{server: "https://192.0.2.7:6443"}
	if got := r.news(t.Context()); len(got) != 1 {
		t.Errorf("at first %v", got)
	}
	if got := r.news(t.Context()); got != nil {
		t.Errorf("again %v", got)
	}
	r.looked = r.looked.Add(-lookAgain)
	if got := r.news(t.Context()); got != nil {
		t.Errorf("a minute later, and unchanged, %v", got)
	}
}
