package kube

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"warren/internal/discovery"
)

const (
	// lookAgain is how long the addresses of the API server's name count.
	lookAgain = time.Minute
	// lookPatience is how long an answer may take.
	lookPatience = 2 * time.Second
)

// reached is where this agent reaches the API server. The EndpointSlices need not say so: it may be the address of a
// load balancer, or of a server that they do not name any more.
type reached struct {
	server  string // its URL
	servers []netip.AddrPort
	looked  time.Time
}

// news returns an event when there is something to say for the first time, or anew.
func (r *reached) news(ctx context.Context) []discovery.Event {
	if len(r.servers) > 0 && time.Since(r.looked) < lookAgain {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
	defer cancel()
	now := discovery.Reach(ctx, r.server)
	r.looked = time.Now()
	if len(now) == 0 || slices.Equal(now, r.servers) {
		return nil
	}
	r.servers = now
	return []discovery.Event{{Kind: discovery.Servers, Servers: now}}
}
