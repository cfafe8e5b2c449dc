package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"warren/internal/cluster"
	"warren/internal/discovery"
	"warren/internal/discovery/record"
)

const (
	// DefaultPrefix is what keys begin with.
	DefaultPrefix = "/warren/v1"
	// DefaultLease is how long the own key stays when nobody renews it.
	DefaultLease = time.Minute
)

const (
	// patience is how long etcd may take to answer.
	patience = 5 * time.Second
	// reconnect bounds how long after a session the next one begins, at random, so that not all machines of a
	// cluster come at once; it doubles up to maxReconnect while no session comes about.
	reconnect    = 500 * time.Millisecond
	maxReconnect = 5 * time.Second
	// longSession is one that had nothing in its way from the start: longer than etcd takes not to answer.
	longSession = patience + time.Second
)

// Options of New; Endpoints are needed.
type Options struct {
	// Endpoints are URLs of members: https://192.0.2.1:2379.
	Endpoints []string
	// Prefix is what the keys of the cluster begin with. Empty: DefaultPrefix.
	Prefix string
	// CAFile has the certificates (PEM) of who signs those of the members. Empty: the system's.
	CAFile string
	// CertFile and KeyFile have the certificate (PEM) that this machine shows, and its key. Empty: none.
	CertFile, KeyFile string
	// User and the password in PasswordFile say who this machine is. Empty: who its certificate says.
	User, PasswordFile string
	// Lease is how long the own key stays when nobody renews it, in whole seconds. Zero: DefaultLease.
	Lease time.Duration
	// Self names this machine, for Publish and Withdraw. Zero: only read.
	Self cluster.NodeID
}

// Etcd is the records of one cluster in etcd. Its methods may be called from different goroutines.
type Etcd struct {
	Options
	layout  layout
	own     *own
	running atomic.Bool // Run has the own key
}

var (
	_ discovery.Source    = (*Etcd)(nil)
	_ discovery.Publisher = (*Etcd)(nil)
)

// New returns an Etcd without touching network or files.
func New(o Options) (*Etcd, error) {
	o.Prefix, o.Lease = cmp.Or(o.Prefix, DefaultPrefix), cmp.Or(o.Lease, DefaultLease)
	if len(o.Endpoints) == 0 {
		return nil, errors.New("discovery by etcd: no endpoint was named")
	}
	if !strings.HasPrefix(o.Prefix, "/") || strings.HasSuffix(o.Prefix, "/") {
		return nil, fmt.Errorf("discovery by etcd: prefix %q does not begin, or ends, with a slash", o.Prefix)
	}
	l := layout(o.Prefix)
	return &Etcd{Options: o, layout: l, own: &own{key: l.node(o.Self), self: o.Self, poke: make(chan struct{}, 1)}}, nil
}

// Run implements discovery.Source. It has no error that ends it: whatever is wrong with etcd may be put right,
// and is a problem until then.
func (e *Etcd) Run(ctx context.Context, emit func(discovery.Event)) error {
	e.running.Store(true)
	defer e.running.Store(false)
	r := &run{Etcd: e, emit: emit, believed: newState(e.layout, e.Self)}
	for pause := reconnect; ; pause = min(2*pause, maxReconnect) {
		began := time.Now()
		err := r.session(ctx)
		if ctx.Err() != nil {
			return nil
		}
		lasted := time.Since(began) > longSession
		if lasted {
			pause = reconnect
		}
		r.lost(err, lasted)
		if !discovery.Sleep(ctx, rand.N(pause)) {
			return nil
		}
	}
}

// Publish implements discovery.Publisher. The error says why etcd has never had a record of this machine since
// the agent started; later ones are problems.
func (e *Etcd) Publish(ctx context.Context, node cluster.Node) error {
	wanted, err := e.publishable(ctx, node)
	if err == nil {
		err = e.own.want(wanted)
	}
	if err != nil {
		return fmt.Errorf("publish the record of %s: %w", node.ID, err)
	}
	return nil
}

// publishable returns node as the key will say it, or why it cannot be published.
func (e *Etcd) publishable(ctx context.Context, node cluster.Node) (cluster.Node, error) {
	switch {
	case ctx.Err() != nil:
		return cluster.Node{}, ctx.Err()
	case node.ID != e.Self:
		return cluster.Node{}, fmt.Errorf("this machine is %s", e.Self)
	}
	return record.Unmarshal(e.own.key, e.Self.Name, record.Marshal(node)) // nothing is written that would not be read
}

// Withdraw implements discovery.Publisher. While Run runs, it does not wait, and the error says that etcd does
// not have it yet; otherwise it waits for etcd as long as ctx lets it. The key of another machine is left, and an error.
func (e *Etcd) Withdraw(ctx context.Context) error {
	if e.Self == (cluster.NodeID{}) {
		return errors.New("withdraw a record: no machine was named")
	}
	err := e.own.leave()
	if err != nil && !e.running.Load() {
		r := &run{Etcd: e, emit: func(discovery.Event) {}}
		err = r.withdraw(ctx)
	}
	if err != nil {
		return fmt.Errorf("withdraw the record of %s: %w", e.Self, err)
	}
	return nil
}
