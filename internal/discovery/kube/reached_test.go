package kube

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"warren/internal/cluster"
	"warren/internal/discovery"
)

// TestServersWithoutTheServer: where the agent reaches the API server is said before it has answered: in strict mode it may
// be reached only because it is known.
func TestServersWithoutTheServer(t *testing.T) {
	self := cluster.NodeID{Cluster: "default", Name: "n1"}
	k, err := New(Options{Kubeconfig: kubeconfig(t, "https://192.0.2.7:6443"), Self: self}) // RFC 5737: nobody
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var got []string
	_ = k.Run(ctx, func(e discovery.Event) {
		for _, server := range e.Servers {
			got = append(got, server.String())
			cancel()
		}
	})
	if diff := cmp.Diff([]string{"192.0.2.7:6443"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFollow: what is told in ten minutes of what a name leads to.
func TestFollow(t *testing.T) {
	one, two := netip.MustParseAddrPort("192.0.2.7:6443"), netip.MustParseAddrPort("192.0.2.8:6443")
	type answer struct {
		until   time.Duration
		servers []netip.AddrPort
	}
	for _, test := range []struct {
		name    string
		answers []answer
		want    []answer // when it was told, and what
	}{
		{"it stays what it is", []answer{{time.Hour, []netip.AddrPort{one}}}, []answer{{0, []netip.AddrPort{one}}}},
		{"nobody knows it at first", []answer{{12 * time.Second, nil}, {time.Hour, []netip.AddrPort{one}}}, []answer{{15 * time.Second, []netip.AddrPort{one}}}},
		{
			"it moves", []answer{{90 * time.Second, []netip.AddrPort{one}}, {time.Hour, []netip.AddrPort{one, two}}},
			[]answer{{0, []netip.AddrPort{one}}, {2 * time.Minute, []netip.AddrPort{one, two}}},
		},
		{
			"nobody knows it for a while", []answer{{30 * time.Second, []netip.AddrPort{one}}, {3 * time.Minute, nil}, {time.Hour, []netip.AddrPort{one}}},
			[]answer{{0, []netip.AddrPort{one}}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				began, found := time.Now(), make(chan []netip.AddrPort)
				go follow(ctx, func(context.Context) []netip.AddrPort {
					i := 0
					for time.Since(began) >= test.answers[i].until {
						i++
					}
					return test.answers[i].servers
				}, found)
				var got []answer
				for ctx.Err() == nil {
					select {
					case <-ctx.Done():
					case servers := <-found:
						got = append(got, answer{time.Since(began), servers})
					}
				}
				if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(answer{}), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
					t.Errorf("told (-want +got):\n%s", diff)
				}
			})
		})
	}
}
