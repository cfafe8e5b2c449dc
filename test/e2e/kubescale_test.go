package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"warren/internal/api"
	"warren/internal/cluster"
	"warren/internal/lab/control"
	"warren/internal/wireguard/userspace"
	"warren/test/admin"
)

// A cluster of a thousand nodes, and what one agent of it may take.
const (
	crowdNodes  = 1000
	crowdRate   = 20 // changed records a second
	crowdSpan   = 20 * time.Second
	crowdLag    = time.Second     // from a change to the kernel's map, 99th percentile
	crowdSync   = 5 * time.Second // from the start to synced
	crowdMemory = 100 << 20       // bytes resident
)

// TestKubeScale: a whole agent, its userspace tunnel and its maps among a thousand nodes that only have records. It measures
// time, and therefore has no other test beside it.
func TestKubeScale(t *testing.T) {
	c := crowded{upKube(t, "kscale", "--nodes", "1", "--pods", "1")}
	client, err := admin.Connect(c.control())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Transport.CloseIdleConnections)
	c.prefer()
	start := time.Now()
	if err := client.MakeMany(1, crowdNodes+1); err != nil {
		t.Fatal(err)
	}
	made := time.Since(start)
	c.untilPeers()
	t.Logf("%d records: made in %.1f s, all peers %.1f s later; %s", crowdNodes, made.Seconds(), (time.Since(start) - made).Seconds(), c.memory())
	c.changes(client)
	c.restart()
}

// crowded is a lab whose n1 has a crowd for peers.
type crowded struct{ *testLab }

// prefer lets what is measured come before whatever else the machine does, as the tunnel does already.
func (c crowded) prefer() {
	c.t.Helper()
	for _, pid := range []int{c.pid("n1"), c.control().PID(control.Etcd), c.control().PID(control.APIServer)} {
		if err := userspace.Prefer(pid); err != nil {
			c.t.Logf("process %d is not preferred: %v", pid, err)
		}
	}
}

// tunnel are the processes of n1's tunnel: none where the kernel has WireGuard.
func (c crowded) tunnel() []int { return tunnels(c.t, c.testLab, "n1") }

// untilPeers waits until n1 has done all that it knows of, and its device has the whole crowd.
func (c crowded) untilPeers() {
	c.t.Helper()
	eventually(c.t, time.Minute, "the crowd are peers", func() bool {
		status := c.status("n1")
		return status.Ready && len(status.Peers) == crowdNodes && !slices.ContainsFunc(status.Peers, func(p api.Peer) bool { return !p.Installed })
	})
}

// memory states what is resident, and holds it against the limit.
func (c crowded) memory() string {
	c.t.Helper()
	agent, tunnel := residentMemory(c.t, c.pid("n1")), 0
	for _, pid := range c.tunnel() {
		tunnel += residentMemory(c.t, pid)
	}
	if agent >= crowdMemory {
		c.t.Errorf("the agent has %d MiB resident", agent>>20)
	}
	return fmt.Sprintf("resident %d MiB the agent, %d MiB its tunnel", agent>>20, tunnel>>20)
}

// changes gives nodes of the crowd another pod, one after the other, and measures how long it takes until the map of n1 has
// what is new.
func (c crowded) changes(client *admin.Client) {
	c.t.Helper()
	const n = int(crowdSpan/time.Second) * crowdRate
	start, agent, tunnel := time.Now(), cpu(c.t, c.pid("n1")), cpu(c.t, c.tunnel()...)
	lags := c.lags(client, n)
	c.t.Logf("%d changes in %.1f s; CPU: %.0f %% of a core the agent, %.0f %% its tunnel; %s", n, time.Since(start).Seconds(), agent(), tunnel(), c.memory())
	slices.Sort(lags)
	c.t.Logf("a change is in the map after %v (median), %v (99th percentile), %v (most)",
		lags[n/2].Round(time.Millisecond), lags[n*99/100].Round(time.Millisecond), lags[n-1].Round(time.Millisecond))
	if lag := lags[n*99/100]; lag > crowdLag {
		c.t.Errorf("a change is in the map after %v only", lag)
	}
}

// lags makes n changes and returns how long each took.
func (c crowded) lags(client *admin.Client, n int) []time.Duration {
	c.t.Helper()
	lags := make([]time.Duration, n)
	var group errgroup.Group
	tick := time.NewTicker(time.Second / crowdRate)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		group.Go(func() (err error) {
			lags[i], err = c.change(client, i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		c.t.Fatal(err)
	}
	return lags
}

// change gives a node another pod, and returns how long after the API server's answer the map of n1 was seen to have it. It is
// looked at every 50 ms.
func (c crowded) change(client *admin.Client, i int) (time.Duration, error) {
	node, pod := admin.Many(1+i*7%crowdNodes), netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)})
	spec := admin.Fields{"prefixes": append(node.Prefixes, cluster.HostPrefix(pod)), "issued": time.Now()}
	if _, err := client.Do(http.MethodPatch, admin.Records+"/"+node.ID.Name, admin.Fields{"spec": spec}); err != nil {
		return 0, err
	}
	start := time.Now()
	for ; ; time.Sleep(50 * time.Millisecond) {
		entry, err := c.client("n1").Entry(context.Background(), pod)
		took := time.Since(start)
		switch {
		case err == nil && entry.Agree && entry.Owner == node.ID.String():
			return took, nil
		case err != nil && !errors.Is(err, api.ErrNotFound):
			return 0, err
		case took > time.Minute:
			return 0, fmt.Errorf("%s of %s is not in the map", pod, node.ID)
		}
	}
}

// restart measures how long the agent takes until it has read everything, and until it has done everything.
func (c crowded) restart() {
	c.t.Helper()
	c.must("agent", "restart", "n1")
	c.untilPeers()
	start := c.status("n1").Started
	ready, synced := time.Since(start), c.syncedAt().Sub(start)
	c.t.Logf("restart: synced after %.1f s, all peers after %.1f s; %s", synced.Seconds(), ready.Seconds(), c.memory())
	if synced > crowdSync {
		c.t.Errorf("synced after %v", synced)
	}
}

var synced = regexp.MustCompile(`(?m)^time=(\S+) level=INFO msg="discovery is synced"$`)

// syncedAt is when the agent of n1 had everything last, as its log says.
func (c crowded) syncedAt() time.Time {
	c.t.Helper()
	log, err := os.ReadFile(c.agentLog("n1"))
	if err != nil {
		c.t.Fatal(err)
	}
	found := synced.FindAllSubmatch(log, -1)
	if len(found) == 0 {
		c.t.Fatal("the log does not say that discovery is synced")
	}
	at, err := time.Parse(time.RFC3339Nano, string(found[len(found)-1][1]))
	if err != nil {
		c.t.Fatal(err)
	}
	return at
}
