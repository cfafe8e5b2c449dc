package etcd

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record"
	"warren/internal/discovery/record/recordtest"
)

// TestEtcdTwoMachines: they know each other by their keys, which have leases and the text of records.
func TestEtcdTwoMachines(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one := listen(t, "n1", Options{Endpoints: []string{s.url()}})
	one.publish(1)
	two := listen(t, "n2", Options{Endpoints: []string{s.url()}})
	two.publish(2)
	one.knows("n2", 2)
	two.knows("n1", 1)
	two.publish(3)
	one.knows("n2", 3)
	want := []string{"synced", "upsert default/n1 10.0.0.1", "upsert default/n2 10.0.0.2", "upsert default/n2 10.0.0.3"}
	if diff := cmp.Diff(want, one.heard()); diff != "" {
		t.Errorf("n1 heard (-want +got):\n%s", diff)
	}
	key, _ := s.admin().get("n2")
	if string(key.text) != string(says("n2", 3)) || key.lease == 0 {
		t.Errorf("lease %d:\n%s", key.lease, key.text)
	}
}

// TestEtcdKilled: while etcd is away nothing is forgotten, the problem says since when, and what changed meanwhile
// counts afterwards.
func TestEtcdKilled(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one, two := listen(t, "n1", Options{Endpoints: []string{s.url()}}), listen(t, "n2", Options{Endpoints: []string{s.url()}})
	one.publish(1)
	two.publish(2)
	one.knows("n2", 2)
	one.heard()
	died := time.Now().UTC()
	s.kill()
	one.saysOne("connection refused; see whether it runs")
	if said := one.said()[0]; !strings.HasPrefix(said, s.url()+": no session with etcd since "+died.Format("2006-01-02T15:04:")) {
		t.Error(said)
	}
	if err := two.etcd.Publish(context.Background(), recordtest.Sample("n2", 4)); err != nil {
		t.Errorf("publish while etcd is away, what was there once: %v", err)
	}
	if heard := one.heard(); len(heard) > 0 {
		t.Errorf("n1 heard %q while etcd was away", heard)
	}
	s.start()
	one.knows("n2", 4)
	eventually(t, "the problem is gone", func() bool { return len(one.said()) == 0 })
	if diff := cmp.Diff([]string{"upsert default/n2 10.0.0.4"}, one.heard()); diff != "" {
		t.Errorf("n1 heard (-want +got):\n%s", diff)
	}
}

// TestEtcdNotThereYet: an agent may start before etcd does.
func TestEtcdNotThereYet(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.kill()
	one := listen(t, "n1", Options{Endpoints: []string{s.url()}})
	if err := one.etcd.Publish(context.Background(), recordtest.Sample("n1", 1)); err == nil {
		t.Error("published into nothing")
	}
	eventually(t, "n1 says that etcd is away", func() bool { return len(one.said()) > 0 })
	s.start()
	one.publish(1)
}

// TestEtcdWiped: etcd comes back empty, and its revisions begin anew. Every machine writes its key again, and what changes
// from then on is heard, though its revisions have been seen before.
func TestEtcdWiped(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one, two := listen(t, "n1", Options{Endpoints: []string{s.url()}}), listen(t, "n2", Options{Endpoints: []string{s.url()}})
	one.publish(1)
	for n := range byte(20) {
		two.publish(n + 1)
	}
	one.knows("n2", 20)
	old := s.admin()
	_, before := old.get("n2")
	s.kill()
	s.restore("")
	s.start()
	operator := s.admin()
	eventually(t, "both keys are there again", func() bool {
		n1, revision := operator.get("n1")
		n2, _ := operator.get("n2")
		if revision >= before {
			t.Fatalf("revision %d is not from before %d", revision, before)
		}
		return n1.lease != 0 && n2.lease != 0
	})
	two.publish(30)
	one.knows("n2", 30)
	for _, line := range one.heard() {
		if strings.HasPrefix(line, "left") {
			t.Errorf("n1 takes the wiped key of another for a withdrawal: %s", line)
		}
	}
}

// TestEtcdRestored: etcd is restored to what it was, with a lower revision. What has been written since is undone, and what
// is written next is heard.
func TestEtcdRestored(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one := listen(t, "n1", Options{Endpoints: []string{s.url()}})
	one.publish(1)
	operator := s.admin()
	operator.put("n2", string(says("n2", 2)))
	s.kill()
	backup := s.backup()
	s.start()
	for n := range byte(20) {
		operator.put("n2", string(says("n2", 10+n)))
	}
	operator.put("n3", string(says("n3", 3)))
	one.knows("n2", 29)
	one.knows("n3", 3)
	one.heard()
	_, before := operator.get("n2")
	s.kill()
	s.restore(backup)
	s.start()
	one.knows("n2", 2)
	one.knows("n3", 0)
	operator = s.admin()
	operator.put("n4", string(says("n4", 4)))
	if _, after := operator.get("n2"); after >= before {
		t.Fatalf("revision %d is not from before %d", after, before)
	}
	one.knows("n4", 4)
	if diff := cmp.Diff([]string{"upsert default/n2 10.0.0.2", "delete default/n3", "upsert default/n4 10.0.0.4"}, one.heard()); diff != "" {
		t.Errorf("n1 heard (-want +got):\n%s", diff)
	}
	eventually(t, "the own key has its lease", func() bool { n1, _ := operator.get("n1"); return n1.lease != 0 })
}

// TestEtcdCompacted: what changed while the connection was away is compacted. Only what is really gone is deleted.
func TestEtcdCompacted(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	way := newProxy(t, s.client)
	one := listen(t, "n1", Options{Endpoints: []string{"http://" + way.address}})
	operator := s.admin()
	operator.put("n2", string(says("n2", 2)))
	operator.put("n3", string(says("n3", 3)))
	one.knows("n2", 2)
	one.knows("n3", 3)
	one.heard()
	way.cut()
	operator.delete("n3")
	operator.put("n2", string(says("n2", 5)))
	_, revision := operator.get("n2")
	if _, err := operator.Compact(operator.ctx(), revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	way.mend()
	one.knows("n2", 5)
	if diff := cmp.Diff([]string{"upsert default/n2 10.0.0.5", "delete default/n3"}, one.heard()); diff != "" {
		t.Errorf("n1 heard (-want +got):\n%s", diff)
	}
}

// TestEtcdWatchOfCompacted: a watch that begins at what is compacted ends with the error that leads to another reading.
func TestEtcdWatchOfCompacted(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	operator := s.admin()
	for n := range byte(5) {
		operator.put("n2", string(says("n2", n+1)))
	}
	if _, err := operator.Compact(operator.ctx(), 5, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Endpoints: []string{s.url()}, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Etcd: e, emit: func(discovery.Event) {}, believed: newState(e.layout, self)}
	late := &session{run: r, client: operator.Client, revision: 1}
	err = late.follow(operator.ctx(), nil)
	if err == nil || err.Error() != "etcdserver: mvcc: required revision has been compacted" {
		t.Errorf("follow: %v", err)
	}
}

// TestEtcdLeaseLost: the lease of the own key is revoked. The key is there again, with another one.
func TestEtcdLeaseLost(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one := listen(t, "n1", Options{Endpoints: []string{s.url()}, Lease: 6 * time.Second})
	one.publish(1)
	operator := s.admin()
	before, _ := operator.get("n1")
	if _, err := operator.Revoke(operator.ctx(), clientv3.LeaseID(before.lease)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key is there again", func() bool {
		now, _ := operator.get("n1")
		return now.lease != 0 && now.lease != before.lease && string(now.text) == string(before.text)
	})
}

// TestEtcdOwnKeyIsKept: whatever becomes of the own key, it is as it was soon.
func TestEtcdOwnKeyIsKept(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one := listen(t, "n1", Options{Endpoints: []string{s.url()}})
	one.publish(1)
	operator := s.admin()
	before, _ := operator.get("n1")
	for name, harm := range map[string]func(){
		"deleted":             func() { operator.delete("n1") },
		"altered":             func() { operator.put("n1", "garbage") },
		"declared to be gone": func() { operator.put("n1", "withdrawn") },
		"put without a lease": func() { operator.put("n1", string(before.text)) },
	} {
		t.Run(name, func(t *testing.T) {
			harm()
			eventually(t, "the key is as before", func() bool {
				now, _ := operator.get("n1")
				return string(now.text) == string(before.text) && now.lease == before.lease
			})
		})
	}
}

// TestEtcdRunsOut: an agent that stops says nothing of its machine, and one that withdraws does; also to those that
// were not listening.
func TestEtcdRunsOut(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one := listen(t, "n1", Options{Endpoints: []string{s.url()}})
	two := listen(t, "n2", Options{Endpoints: []string{s.url()}, Lease: 2 * time.Second})
	two.publish(2)
	one.knows("n2", 2)
	one.heard()
	two.stop()
	one.knows("n2", 0)
	if diff := cmp.Diff([]string{"delete default/n2"}, one.heard()); diff != "" {
		t.Errorf("n1 heard of an agent that stopped (-want +got):\n%s", diff)
	}
	if err := two.etcd.Withdraw(context.Background()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "n1 hears that n2 has left", func() bool { return slices.Equal(one.heard(), []string{"left default/n2"}) })
	three := listen(t, "n3", Options{Endpoints: []string{s.url()}})
	eventually(t, "n3 hears it as well", func() bool { return slices.Equal(three.heard(), []string{"left default/n2", "synced"}) })
	key, _ := s.admin().get("n2")
	left, err := s.admin().TimeToLive(context.Background(), clientv3.LeaseID(key.lease))
	if err != nil || left.TTL < int64(6*24*time.Hour/time.Second) {
		t.Errorf("the withdrawal stays for %d s, %v", left.TTL, err)
	}
}

// TestEtcdWithdraw: an agent withdraws its key while it runs, and may stay after all.
func TestEtcdWithdraw(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one, two := listen(t, "n1", Options{Endpoints: []string{s.url()}}), listen(t, "n2", Options{Endpoints: []string{s.url()}})
	two.publish(2)
	one.knows("n2", 2)
	one.heard()
	eventually(t, "n2 has withdrawn", func() bool { return two.etcd.Withdraw(context.Background()) == nil })
	eventually(t, "n1 hears it", func() bool { return slices.Equal(one.heard(), []string{"left default/n2"}) })
	two.publish(2)
	one.knows("n2", 2)
}

// TestEtcdWithdrawOfAnother: the key of a machine of the same name with another key stays.
func TestEtcdWithdrawOfAnother(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	operator := s.admin()
	e, err := New(Options{Endpoints: []string{s.url()}, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	_ = e.Publish(context.Background(), recordtest.Sample("n1", 1))
	operator.put("n1", string(says("n1", 9)))
	if err := e.Withdraw(context.Background()); err == nil || !strings.Contains(err.Error(), "withdraw the record of default/n1: the key has the record of a machine with another key") {
		t.Errorf("withdraw: %v", err)
	}
	if key, _ := operator.get("n1"); string(key.text) != string(says("n1", 9)) {
		t.Errorf("the key says:\n%s", key.text)
	}
}

// TestEtcdRivals: two machines have one name. Both are told, and they do not fill etcd with their quarrel.
func TestEtcdRivals(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	one, other := listen(t, "n1", Options{Endpoints: []string{s.url()}}), listen(t, "n1", Options{Endpoints: []string{s.url()}})
	_ = one.etcd.Publish(context.Background(), recordtest.Sample("n1", 1))
	_ = other.etcd.Publish(context.Background(), recordtest.Sample("n1", 2))
	told := func(l *listener, key string) bool {
		return slices.ContainsFunc(l.said(), func(p string) bool {
			return strings.Contains(p, "another agent writes this machine's record, with key "+key)
		})
	}
	eventually(t, "both are told", func() bool { return told(one, "AgICAgIC") && told(other, "AQEBAQEB") })
	operator := s.admin()
	_, before := operator.get("n1")
	time.Sleep(3 * time.Second) // what must not happen
	if _, after := operator.get("n1"); after-before > 4 {
		t.Errorf("%d writes in 3 s", after-before)
	}
}

// TestEtcdAPIServers: the list in PREFIX/apiservers is told, and where etcd is reached is as well.
func TestEtcdAPIServers(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	operator := s.admin()
	list := record.MarshalAPIServers([]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:6443")})
	if _, err := operator.Put(operator.ctx(), testLayout.apiServers(), string(list)); err != nil {
		t.Fatal(err)
	}
	one := listen(t, "n1", Options{Endpoints: []string{s.url()}})
	eventually(t, "n1 hears of the API server", func() bool { return slices.Equal(one.heard(), []string{"api-servers [10.0.0.1:6443]", "synced"}) })
}

// TestServers: others let pass what goes to etcd, by address, and not what stays on this machine.
func TestServers(t *testing.T) {
	var events []discovery.Event
	e, err := New(Options{Endpoints: []string{"https://192.0.2.7:2379", "http://[2001:db8::7]:2379", "http://127.0.0.1:2379", "https://192.0.2.7:2379"}, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Etcd: e, emit: func(e discovery.Event) { events = append(events, e) }}
	r.announce(context.Background())
	r.announce(context.Background())
	if got := fmt.Sprint(events[0].Servers); len(events) != 1 || got != "[192.0.2.7:2379 [2001:db8::7]:2379]" {
		t.Errorf("%d events, the first with %s", len(events), got)
	}
}

// TestEtcdLongRecord: a key with 10 MiB, in an etcd that takes such, changes nothing and is named.
func TestEtcdLongRecord(t *testing.T) {
	t.Parallel()
	s := newServer(t, "--max-request-bytes", fmt.Sprint(20<<20))
	operator := s.admin(func(c *clientv3.Config) { c.MaxCallSendMsgSize = 20 << 20 })
	operator.put("n2", string(says("n2", 2)))
	one := listen(t, "n1", Options{Endpoints: []string{s.url()}})
	one.knows("n2", 2)
	operator.put("n2", strings.Repeat("x", 10<<20))
	eventually(t, "n1 names the key", func() bool {
		said := one.said()
		return len(said) == 1 && strings.HasPrefix(said[0], "/warren/v1/nodes/n2: more than 1048576 bytes")
	})
	operator.put("n3", string(says("n3", 3)))
	one.knows("n3", 3)
	one.knows("n2", 2)
}

// TestSessionThatEnds: one that lasted is begun anew before anything is said; one that comes to nothing is a problem,
// since the same moment as long as it does.
func TestSessionThatEnds(t *testing.T) {
	var problems []discovery.Problem
	e, err := New(Options{Endpoints: []string{"http://10.0.0.1:2379"}, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{Etcd: e, believed: newState(e.layout, self), emit: func(e discovery.Event) { problems = e.Problems }}
	r.lost(errLost, true)
	if len(problems) > 0 {
		t.Errorf("after a session that lasted: %v", problems)
	}
	r.since = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	r.lost(errLost, false)
	want := discovery.Problem{
		Where: "http://10.0.0.1:2379", Message: "no session with etcd since 2026-11-30T12:00:00Z: the connection was lost",
		Remedy: "see whether it runs, has a quorum, and can be reached from here; the records of before are kept meanwhile",
	}
	if diff := cmp.Diff([]discovery.Problem{want}, problems); diff != "" {
		t.Errorf("after one that came to nothing (-want +got):\n%s", diff)
	}
}

// TestNew: what cannot be opened.
func TestNew(t *testing.T) {
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{}, "discovery by etcd: no endpoint was named"},
		{Options{Endpoints: []string{"http://10.0.0.1:2379"}, Prefix: "warren"}, `discovery by etcd: prefix "warren" does not begin, or ends, with a slash`},
	} {
		if _, err := New(test.options); err == nil || err.Error() != test.want {
			t.Errorf("want %q, got %v", test.want, err)
		}
	}
	e, err := New(Options{Endpoints: []string{"http://10.0.0.1:2379"}, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	other := recordtest.Sample("n2", 2)
	if err := e.Publish(context.Background(), other); err == nil || err.Error() != "publish the record of default/n2: this machine is default/n1" {
		t.Errorf("another's record: %v", err)
	}
	if err := e.Publish(context.Background(), cluster.Node{ID: self}); err == nil || !strings.Contains(err.Error(), "keys: ") {
		t.Errorf("a record that nobody would read: %v", err)
	}
}
