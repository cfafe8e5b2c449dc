package etcd

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"warren/internal/discovery"
)

const (
	// page is how many keys are read at once.
	page = 256
	// withdrawnFor is how long the key of a machine that has left says so: agents that are away longer than
	// that find it out by its silence.
	withdrawnFor = 7 * 24 * time.Hour
)

// run is what outlives sessions. Only Run's goroutine touches it.
type run struct {
	*Etcd
	emit     func(discovery.Event)
	believed state
	told     state              // what the consumer knows
	servers  []netip.AddrPort   // where etcd is reached
	since    time.Time          // when the last session was lost; zero while there is one
	trouble  *discovery.Problem // why there is none
	lease    clientv3.LeaseID   // of the own key; 0 for none
}

// session is one connection.
type session struct {
	*run
	client   *clientv3.Client
	revision int64 // that believed is of
	have     has   // the own key
}

var (
	errLost  = errors.New("the connection was lost")
	errEnded = errors.New("etcd ended the watch")
)

// session connects, reads and follows the keys until something is in its way.
func (r *run) session(ctx context.Context) error {
	client, err := r.connect(ctx)
	if err != nil {
		return err
	}
	var waits sync.WaitGroup
	defer waits.Wait()
	defer client.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &session{run: r, client: client}
	if err := s.readAll(ctx); err != nil {
		return err
	}
	lost := make(chan struct{})
	waits.Go(func() {
		defer close(lost)
		client.ActiveConnection().WaitForStateChange(ctx, connectivity.Ready)
	})
	if err := s.renew(ctx); err != nil {
		return err
	}
	for {
		if err := s.follow(ctx, lost); !errors.Is(err, rpctypes.ErrCompacted) {
			return err
		}
		if err := s.readAll(ctx); err != nil {
			return err
		}
	}
}

// lost notes that there is no session. One that lasted may be mended at once, and is no problem yet.
func (r *run) lost(err error, lasted bool) {
	if r.since.IsZero() {
		r.since = time.Now()
	}
	if !lasted {
		r.trouble = r.problemOf(err)
	}
	r.tell()
}

// tell emits what the consumer does not know yet.
func (r *run) tell() {
	others := r.own.problems(time.Now())
	if r.trouble != nil {
		others = append(others, *r.trouble)
	}
	r.believed.Problems = r.believed.AllProblems(others...)
	for _, event := range r.believed.eventsSince(r.told) {
		r.emit(event)
	}
	r.told = r.believed
}

// readAll reads every key, as of one revision.
func (s *session) readAll(ctx context.Context) error {
	all, start, revision := news{}, s.layout.all(), int64(0)
	s.have = has{}
	for more := true; more; {
		response, err := s.get(ctx, start, revision)
		if err != nil {
			return err
		}
		for _, kv := range response.Kvs {
			all[string(kv.Key)] = kv.Value
			s.note(string(kv.Key), has{kv.Value, kv.Lease})
			start = string(kv.Key) + "\x00"
		}
		more, revision = response.More, response.Header.Revision
	}
	s.revision = revision
	s.believed = s.believed.next(s.believed.complete(all))
	s.believed.Synced, s.since, s.trouble = true, time.Time{}, nil
	s.tell()
	return nil
}

// get reads the next keys as of a revision; 0 is the present one.
func (s *session) get(ctx context.Context, start string, revision int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	response, err := s.client.Get(ctx, start, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.layout.all())), clientv3.WithLimit(page), clientv3.WithRev(revision))
	if err == nil && revision != 0 {
		response.Header.Revision = revision
	}
	return response, err
}

// note keeps what the own key says.
func (s *session) note(key string, now has) {
	if key == s.own.key {
		s.have = now
	}
}

// follow takes in what changes, and keeps the own key, until something is in its way: rpctypes.ErrCompacted when
// what has changed since the last reading is not there any more.
func (s *session) follow(ctx context.Context, lost <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := s.client.Watch(clientv3.WithRequireLeader(ctx), s.layout.all(), clientv3.WithPrefix(), clientv3.WithRev(s.revision+1))
	renew := time.NewTicker(s.Lease / 3)
	defer renew.Stop()
	again := time.NewTimer(0) // the own key is to be looked at
	defer again.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-lost:
			return errLost
		case response, open := <-watch:
			err = s.take(response, open)
		case <-renew.C:
			err = s.renew(ctx)
		case <-s.own.poke:
		case <-again.C:
		}
		if err != nil {
			return err
		}
		pause, err := s.keep(ctx)
		if err != nil {
			return err
		}
		again.Reset(pause)
		s.tell()
	}
}

// take takes in what has changed.
func (s *session) take(response clientv3.WatchResponse, open bool) error {
	if !open {
		return errEnded
	}
	if err := response.Err(); err != nil {
		return err
	}
	changed := news{}
	for _, event := range response.Events {
		key, now := string(event.Kv.Key), has{}
		if event.Type == clientv3.EventTypePut {
			now = has{event.Kv.Value, event.Kv.Lease}
		}
		changed[key] = now.text
		s.note(key, now)
	}
	if len(changed) > 0 {
		s.believed = s.believed.next(changed)
	}
	s.revision = max(s.revision, response.Header.Revision)
	return nil
}

// renew keeps the lease of the own key from running out. One that has is forgotten.
func (s *session) renew(ctx context.Context) error {
	if s.lease == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := s.client.KeepAliveOnce(ctx, s.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.lease = 0
		return nil
	}
	return err
}

// idle is when to look at the own key again that is as it should be.
const idle = time.Hour

// keep brings the own key to what it is to say. It returns when to look at it again. An error ends the session.
func (s *session) keep(ctx context.Context) (time.Duration, error) {
	for {
		t := s.own.next(time.Now(), s.have, int64(s.lease))
		if t.text == "" {
			return idle, nil
		}
		if t.after > 0 {
			return t.after, nil
		}
		err := s.write(ctx, t)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.lease, err = 0, nil
		}
		if err != nil && !isRefusal(err) {
			return 0, err
		}
		s.own.wrote(time.Now(), err)
	}
}

// write writes the own key, with its lease.
func (s *session) write(ctx context.Context, t task) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	lease, err := s.leaseFor(ctx, t)
	if err != nil {
		return err
	}
	if _, err := s.client.Put(ctx, s.own.key, t.text, clientv3.WithLease(lease)); err != nil {
		return err
	}
	s.have = has{[]byte(t.text), int64(lease)}
	if t.leave {
		s.lease = 0 // the key has the other one now
	}
	return nil
}

func (s *session) leaseFor(ctx context.Context, t task) (clientv3.LeaseID, error) {
	if !t.leave && s.lease != 0 {
		return s.lease, nil
	}
	lasts := s.Lease
	if t.leave {
		lasts = withdrawnFor
	}
	granted, err := s.client.Grant(ctx, int64(lasts/time.Second))
	if err != nil {
		return 0, err
	}
	if !t.leave {
		s.lease = granted.ID
	}
	return granted.ID, nil
}

// withdraw has the own key say that this machine has left, without following the others.
func (r *run) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	client, err := r.connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	s := &session{run: r, client: client}
	response, err := client.Get(ctx, r.own.key)
	if err != nil {
		return err
	}
	for _, kv := range response.Kvs {
		s.note(string(kv.Key), has{kv.Value, kv.Lease})
	}
	if _, err := s.keep(ctx); err != nil {
		return err
	}
	return r.own.leave()
}
