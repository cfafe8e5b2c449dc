package etcd

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record"
	"warren/internal/discovery/record/recordtest"
)

// TestEtcdThousandMachines: an agent reads a thousand records at once, and follows changes of twenty a second.
func TestEtcdThousandMachines(t *testing.T) {
	const machines, changes, rate = 1000, 100, 20
	s := newServer(t)
	operator := s.admin()
	for i := range machines {
		operator.put(thousandth(i).ID.Name, string(record.Marshal(thousandth(i))))
	}
	heard := make(chan discovery.Event, 2*machines)
	e, err := New(Options{Endpoints: []string{s.url()}, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	started := time.Now()
	go func() { ended <- e.Run(ctx, func(e discovery.Event) { heard <- e }) }()
	read := 0
	for event := range heard {
		if event.Kind == discovery.Synced {
			break
		}
		if event.Kind == discovery.Upsert {
			read++
		}
	}
	t.Logf("%d records are read after %v", read, time.Since(started))
	if read != machines {
		t.Fatalf("%d records were read", read)
	}
	var lags []time.Duration
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	for i := range changes {
		<-tick.C
		node := thousandth(i)
		node.Version = "v2"
		written := time.Now()
		operator.put(node.ID.Name, string(record.Marshal(node)))
		for event := range heard {
			if event.ID == node.ID && event.Node.Version == "v2" {
				break
			}
		}
		lags = append(lags, time.Since(written))
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	slices.Sort(lags)
	t.Logf("a change is heard after %v (median), %v (p90), %v (most)", lags[changes/2], lags[changes*9/10], lags[changes-1])
	if late := lags[changes*9/10]; late > time.Second {
		t.Errorf("one change in ten is heard after %v or later", late)
	}
}

// thousandth is a machine of its own for each number.
func thousandth(i int) cluster.Node {
	node := recordtest.Sample(fmt.Sprintf("m%d", i), byte(i%250+1))
	node.Addresses[0] = node.Addresses[0].Next()
	return node
}

// TestEtcdIdle: while nothing changes, nothing is written, and a renewal of the lease now and then is all that is sent.
func TestEtcdIdle(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	way := newProxy(t, s.client)
	one := listen(t, "n1", Options{Endpoints: []string{"http://" + way.address}, Lease: 6 * time.Second})
	one.publish(1)
	operator := s.admin()
	_, before := operator.get("n1")
	carried := way.bytes.Load()
	for range 16 {
		if err := one.etcd.Publish(context.Background(), recordtest.Sample("n1", 1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond) // what must not happen
	}
	key, after := operator.get("n1")
	if after != before {
		t.Errorf("%d writes", after-before)
	}
	if left, err := operator.TimeToLive(operator.ctx(), clientv3.LeaseID(key.lease)); err != nil || left.TTL < 2 {
		t.Errorf("the lease is not renewed: %+v, %v", left, err)
	}
	if idle := way.bytes.Load() - carried; idle > 4096 {
		t.Errorf("%d bytes in 8 s", idle)
	} else {
		t.Logf("%d bytes in 8 s, with a renewal every 2 s", idle)
	}
}
